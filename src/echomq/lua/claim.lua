-- verb: claim
-- purpose: Lease up to `count` jobs; reap, promote and re-open lanes first, so that a queue heals by being used.
-- section: Protocol, sections 5 and 6
-- flags: allow-oom
-- include: now, number, once, many, emit, row, limits, rota, bell, read, place, erase, shelf, ending, bury, cancel, again, fence, round, reap, promote, reopen, serve
-- flows: outbox, kin
-- keys: meta hash; waiting zset; pending zset; active zset; schedule zset; dead zset; done zset; schedules zset; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; job:<id> hash; job:<id>:log list; dedup:<key> string; once:<client>:<verb> string; wake list; events stream; counts hash; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count; count count; lease_ms ms; cap_ms ms; max_bytes bytes; bound count; min_size count; linger_ms ms; by_lane count
-- reply: now ms; next ms; due count; then for each job: id, token, row
-- verdicts:
-- refusals: EMQKIND; EMQVERSION; EMQSTALE
-- events: claimed; expired; stalled; dead; cancelled; promoted; dropped; torn; trimmed
-- cost: O(log n) a job claimed, reaped or promoted, and a lane passed
-- bound: count, max_bytes and bound; 2 * count + 16 lanes
-- moves: pending -> active; pending -> dead; pending -> done; pending -> nothing; active -> pending; active -> dead; active -> done; active -> nothing; schedule -> pending; schedule -> done; schedule -> nothing; done -> nothing; dead -> nothing
local count = whole(ARGV[3], 1, 10000)
local lease = whole(ARGV[4], 1, 604800000)
local cap = whole(ARGV[5], 1, 60000)
local max_bytes = whole(ARGV[6], 1, 1073741824)
local bound = whole(ARGV[7], 1, 10000)
local min_size = whole(ARGV[8], 1, 10000)
local linger = whole(ARGV[9], 0, 86400000)
local by_lane = ARGV[10] == '1'
-- An unnumbered claim would draw one nonce for all of its client's: a failover could then hand out a pair twice.
if not (count and lease and cap and max_bytes and bound and min_size and linger and NUMBER > 0) then --!guard argv
  return redis.error_reply('EMQKIND claim: its number, count, lease_ms, cap_ms, max_bytes, bound, min_size or linger_ms is out of range')
end
local NONCE = CLIENT .. '.' .. ARGV[2]

local kept, refused = recall()
if refused then return refused end
if kept then
  -- The reply was lost: those of its jobs that are still ours, renewed. `next` 0 means ask again.
  local fenced = fence(kept, 1, 2, read_ending)
  local reply = { NOW, 0, 0 }
  for i = 1, #kept, 2 do
    local id, token = kept[i], kept[i + 1]
    local row = fenced(id, token, NONCE)
    if row then --!guard replay-fence
      if row.lane then call('ZADD', lane_active(row.lane), NOW + lease, id) end --!write replay-lane
      call('ZADD', ACTIVE, NOW + lease, id) --!write replay-renew
      reply[#reply + 1] = { id, token, call('HGETALL', row_key(id)) }
    end
  end
  return reply
end

local more = reap(bound) == bound
more = promote(bound) == bound or more
if ROTA then
  settle_rota() -- what became ready by that takes part in the rota
  more = reopen(bound) == bound or more
end

-- Nobody has claimed it in time, or all its attempts should be over.
local function end_late(id, over)
  local row = read(id)
  if over then
    bury(id, row, 'deadline: it was over before the job could be claimed')
  else
    finish(id, row, 'expired', 'reason', 'no worker had claimed it by then')
    emit('expired', id)
  end
end
-- The jobs to lease stand in the reply; `choose` answers whether it is full.
local reply, bytes = { NOW, 0, 0 }, 0
local function choose(id, queued)
  local key = row_key(id)
  local row = call('HGETALL', key)
  local state, attempts, lane = nil, 0, ''
  local expires, deadline
  local size = 0
  for i = 1, #row, 2 do
    local name, value = row[i], row[i + 1]
    size = size + #value
    if name == 'state' then
      state = value
    elseif name == 'attempts' then
      attempts = whole(value, 0, FAR)
    elseif name == 'lane' then
      lane = value
    elseif name == 'expires_ms' then
      expires = tonumber(value)
    elseif name == 'deadline_ms' then
      deadline = tonumber(value)
    end
  end
  -- Half a move between lanes leaves a job in both their sets: its row says in which it belongs.
  if state ~= 'pending' or not attempts or lane ~= serving then --!guard claim-state
    misplaced(id, state, queued) --!write claim-drop
    return false
  end
  if deadline and deadline <= NOW then --!guard deadline-over
    end_late(id, true)
    return false
  end
  if expires and expires <= NOW and attempts == 0 then --!guard expired
    end_late(id, false)
    return false
  end
  if #rows > 0 and bytes + size > max_bytes then return true end --!bound max-bytes
  bytes = bytes + size
  rows[#rows + 1] = key
  -- Spelling a number is dear, and nearly every job is claimed for the first time.
  reply[#reply + 1] = { id, attempts == 0 and '1' or string.format('%.0f', attempts + 1), row }
  return false
end

-- How many may start by the queue's own limits, and when that is looked at again; and when a batch has waited for enough.
local room, ripe = PAUSED and 0 or count, nil --!guard paused
if room > 0 and LIMITS then
  if shut(LIMITS, ACTIVE) then --!guard queue-shut
    room = 0
  else
    if LIMITS.limit > 0 then room = math.min(room, LIMITS.limit - call('ZCARD', ACTIVE)) end --!bound queue-limit
    room = math.min(room, allowance(LIMITS)) --!bound queue-rate
  end
end
local visits = math.min(2 * count + 16, 1000) --!bound visits
if room > 0 and min_size > 1 and not (by_lane and ROTA) then
  ripe = ripens(min_size, linger, visits)
  if ripe then room = 0 end --!guard ripe
end
if room > 0 and ROTA then
  serve(room, visits, by_lane, by_lane and min_size or 1, linger, choose)
elseif room > 0 then
  -- Without a rota, `pending` is the only lane, always alone.
  round(P .. 'pending', call('ZRANGE', P .. 'pending', 0, room - 1), choose) --!bound count
end

-- All into the new set, the rows, all out of the old set: should the server refuse one of the three (a right the user
-- lacks), the call ends there, and each job is still in a set. Nobody was told of a lease then; it is reaped.
local taken, leases, ids = {}, {}, {}
-- The last first: the server looks for a place in a small set from its head on, past all that come before.
for i = #reply, 4, -1 do
  leases[#leases + 1] = NOW + lease
  leases[#leases + 1] = reply[i][1]
end
many_call('ZADD', ACTIVE, leases) --!write claim-lease
for _, lane in ipairs(met or {}) do
  local mine = lane.name ~= '' and lane.taken
  if mine then
    local scored = { NOW + lease, mine[1] }
    for i = 2, #mine do
      scored[#scored + 1] = NOW + lease
      scored[#scored + 1] = mine[i]
    end
    many_call('ZADD', lane_active(lane.name), scored) --!write claim-lane
  end
end
for i, key in ipairs(rows) do
  local id, token = reply[i + 3][1], reply[i + 3][2]
  call('HSET', key, 'state', 'active', 'since', NOW, 'attempts', token, 'holder', NONCE) --!write claim-row
  ids[i] = id
  taken[2 * i - 1], taken[2 * i] = id, token
  emit('claimed', id, 'token', token, 'holder', NONCE)
end
if ROTA and met then
  for _, lane in ipairs(met) do
    if lane.taken then
      many_call('ZREM', lane.key, lane.taken) --!write claim-leave-lane
      if lane.name ~= '' then laned = laned - #lane.taken end --!write claim-unlaned
    end
  end
  end_turns()
else
  many_call('ZREM', P .. 'pending', ids) --!write claim-leave
end
if #taken > 0 and lease > (tonumber(meta[5]) or 0) then
  call('HSET', META, 'lease_max_ms', lease) --!write lease-max
end
local later -- when the queue's own limits let the next job start
if LIMITS then
  if #ids > 0 and LIMITS.count > 0 then
    spend(LIMITS, #ids)
    call('HSET', META, 'limits', spell_limits(LIMITS)) --!write queue-spend
  end
  later = shut(LIMITS, ACTIVE)
end

-- A schedule whose slot has come is fired by whoever is told of it; one whose slot lies ahead sets the timer.
local slot = math.huge
if meta[9] and not meta[3] then --!guard slots
  slot = tonumber(call('ZRANGE', P .. 'schedules', 0, 0, 'WITHSCORES')[2]) or math.huge
  if slot <= NOW then --!guard slot-due
    reply[3], slot = 1, math.huge
  end
end

-- The same with what the outbox holds, and with parents that have waited for long.
local owes = math.huge
if FLOWS then --!guard owes
  owes = owed_at()
  if owes <= NOW then --!guard owes-now
    reply[3], owes = reply[3] + 2, math.huge
  end
end

-- The doorbell and the timer (rule 10, and `next` of section 5).
if ROTA then settle_rota() end
freed = 0 -- whoever claims uses what was freed meanwhile, or says that something is left
local left = not (PAUSED or later or ripe) and call('EXISTS', ROTA and RING or P .. 'pending') == 1 --!guard left
local filled = #ids == count
local watched = true -- whether the keeper, should it be us, still has something to wait for
local keeper = call('HMGET', META, 'keeper', 'keeper_until')
local ring_once = false
if left then
  reply[2] = 0
  made_ready = math.max(1, made_ready - #ids)
else
  made_ready = 0
  local head = math.min(later or math.huge, ripe or math.huge, slot, owes)
  for _, key in ipairs(ROTA and { P .. 'schedule', ACTIVE, CLOSED } or { P .. 'schedule', ACTIVE }) do
    head = math.min(head, tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]) or math.huge) --!write next-head
  end
  local soon = math.max(1, head - NOW)
  local till = tonumber(keeper[2]) or 0
  if not filled then call('DEL', P .. 'wake') end --!write wake-stale
  if ROTA and #ids == 0 then
    -- The clock stepped back: the closed lane that is furthest ahead is not further than it should be.
    local far = call('ZRANGE', CLOSED, '(+inf', '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
    if far[1] then
      local limits = read_lane(call('HGET', LANES, far[1])).limits
      local moment = limits and shut(limits, lane_active(far[1]), nil, true) or NOW + linger
      if moment < tonumber(far[2]) then touch(far[1]) end --!guard far-closed
    end
  end
  -- Nobody will look in time but us: no keeper, ourselves, one whose time is over, or one who comes too late.
  local ours = not keeper[1] or keeper[1] == CLIENT or till < NOW or till > NOW + math.min(soon, cap) + 100 --!guard keeper
  if more then
    reply[2] = 0
  elseif head == math.huge or filled then
    reply[2] = cap
    watched = false
    ring_once = ours and soon < cap --!guard keeper-sooner
  elseif ours and meta[1] then --!guard keeper-gone
    reply[2] = math.min(soon, cap)
    call('HSET', META, 'keeper', CLIENT, 'keeper_until', NOW + reply[2] + 50) --!write keeper
  else
    reply[2] = cap
  end
end
if (filled or not watched) and keeper[1] == CLIENT then --!guard keeper-over
  -- It is told to wait for nothing in particular: whoever hears next of something to wait for keeps the timer.
  call('HDEL', META, 'keeper', 'keeper_until') --!write keeper-up
  -- One that is filled has perhaps left something to wait for, and rings, so that another worker takes the timer.
  if filled then ring_once = true end --!write keeper-ring
end
if ring_once then made_ready = math.max(1, made_ready) end --!write ring-once
bell()
flush_tally()
remember(taken)
return reply
