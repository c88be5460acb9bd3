-- verb: claim
-- purpose: Lease up to `count` jobs; reap and promote first, so that a queue heals by being used.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, number, once, many, emit, bell, row, read, place, ending, cancel, again, bury, fence, round, reap, promote
-- keys: meta hash; pending zset; active zset; schedule zset; dead zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count; count count; lease_ms ms; cap_ms ms; max_bytes bytes; bound count
-- reply: now ms; next ms; then for each job: id, token, row
-- verdicts:
-- refusals: EMQKIND; EMQVERSION; EMQSTALE
-- events: claimed; stalled; dead; cancelled; promoted; dropped; torn
-- cost: O(log n) a job claimed, reaped or promoted
-- bound: count, max_bytes and bound
-- moves: pending -> active; active -> pending; active -> dead; active -> done; active -> nothing; schedule -> pending; schedule -> done; schedule -> nothing
local count = whole(ARGV[3], 1, 10000)
local lease = whole(ARGV[4], 1, 604800000)
local cap = whole(ARGV[5], 1, 60000)
local max_bytes = whole(ARGV[6], 1, 1073741824)
local bound = whole(ARGV[7], 1, 10000)
-- An unnumbered claim would draw one nonce for all of its client's: a failover could then hand out a pair twice.
if not (count and lease and cap and max_bytes and bound and NUMBER > 0) then --!guard argv
  return redis.error_reply('EMQKIND claim: its number, count, lease_ms, cap_ms, max_bytes or bound is out of range')
end
local NONCE = CLIENT .. '.' .. ARGV[2]

local kept, refused = recall()
if refused then return refused end
if kept then
  -- The reply was lost: those of its jobs that are still ours, renewed. `next` 0 means ask again.
  local fenced = fence(kept, 1, 2, read_ending)
  local reply = { NOW, 0 }
  for i = 1, #kept, 2 do
    local id, token = kept[i], kept[i + 1]
    if fenced(id, token, NONCE) then --!guard replay-fence
      call('ZADD', SETS.active, NOW + lease, id) --!write replay-renew
      reply[#reply + 1] = { id, token, call('HGETALL', row_key(id)) }
    end
  end
  return reply
end

local more = reap(bound) == bound
more = promote(bound) == bound or more

-- The jobs to lease stand in the reply; `choose` answers whether it is full.
local reply, rows, bytes = { NOW, 0 }, {}, 0
local function choose(id)
  local key = row_key(id)
  local row = call('HGETALL', key)
  local state, attempts = nil, 0
  local size = 0
  for i = 1, #row, 2 do
    local name, value = row[i], row[i + 1]
    size = size + #value
    if name == 'state' then
      state = value
    elseif name == 'attempts' then
      attempts = whole(value, 0, FAR)
    end
  end
  if state ~= 'pending' or not attempts then --!guard claim-state
    misplaced(id, state, 'pending') --!write claim-drop
    return false
  end
  if #rows > 0 and bytes + size > max_bytes then return true end --!bound max-bytes
  bytes = bytes + size
  rows[#rows + 1] = key
  -- Spelling a number is dear, and nearly every job is claimed for the first time.
  reply[#reply + 1] = { id, attempts == 0 and '1' or string.format('%.0f', attempts + 1), row }
  return false
end

if not PAUSED then --!guard paused
  round('pending', call('ZRANGE', SETS.pending, 0, count - 1), choose) --!bound count
end

-- All into the new set, the rows, all out of the old set: should the server refuse one of the three (a right the user
-- lacks), the call ends there, and each job is still in a set. Nobody was told of a lease then; it is reaped.
local taken, leases, ids = {}, {}, {}
-- The last first: the server looks for a place in a small set from its head on, past all that come before.
for i = #reply, 3, -1 do
  leases[#leases + 1] = NOW + lease
  leases[#leases + 1] = reply[i][1]
end
many_call('ZADD', SETS.active, leases) --!write claim-lease
for i, key in ipairs(rows) do
  local id, token = reply[i + 2][1], reply[i + 2][2]
  call('HSET', key, 'state', 'active', 'since', NOW, 'attempts', token, 'holder', NONCE) --!write claim-row
  ids[i] = id
  taken[2 * i - 1], taken[2 * i] = id, token
  emit('claimed', id, 'token', token, 'holder', NONCE)
end
many_call('ZREM', SETS.pending, ids) --!write claim-leave
if #taken > 0 and lease > (tonumber(meta[5]) or 0) then
  call('HSET', META, 'lease_max_ms', lease) --!write lease-max
end

-- The doorbell and the timer (rule 10, and `next` of section 5).
local left = not PAUSED and call('EXISTS', SETS.pending) == 1
local filled = #taken == 2 * count
local keeper = call('HMGET', META, 'keeper', 'keeper_until')
if left then
  reply[2] = 0
  made_ready = math.max(1, made_ready - #taken / 2)
else
  made_ready = 0
  local schedule = call('ZRANGE', SETS.schedule, 0, 0, 'WITHSCORES')
  local active = call('ZRANGE', SETS.active, 0, 0, 'WITHSCORES')
  local head = math.min(tonumber(schedule[2]) or math.huge, tonumber(active[2]) or math.huge)
  local soon = math.max(1, head - NOW)
  local till = tonumber(keeper[2]) or 0
  if not filled then call('DEL', WAKE) end --!write wake-stale
  if more then
    reply[2] = 0
  elseif head == math.huge or filled then
    reply[2] = cap
  elseif not keeper[1] or keeper[1] == CLIENT or till < NOW or till > NOW + math.min(soon, cap) + 100 then --!guard keeper
    reply[2] = math.min(soon, cap)
    call('HSET', META, 'keeper', CLIENT, 'keeper_until', NOW + reply[2] + 50) --!write keeper
  else
    reply[2] = cap
  end
end
if filled and keeper[1] == CLIENT then
  -- A claim that fills its caller gives the keeping up and rings, so that another worker takes the timer.
  call('HDEL', META, 'keeper', 'keeper_until') --!write keeper-up
  made_ready = math.max(1, made_ready) --!write keeper-ring
end
bell()
flush_tally()
remember(taken)
return reply
