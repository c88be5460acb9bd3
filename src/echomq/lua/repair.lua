-- verb: repair
-- purpose: Bring rows and sets together again, after writes were lost or made by hand; keys of a wrong type go.
-- section: Protocol, sections 5 and 8
-- flags: allow-oom
-- include: now, number, row, begins, limits, rota, read, torn, items, emit, bell, place, erase, lane, slots, typed
-- flows: shelf, bury, outbox, kin
-- keys: meta hash; pending zset; active zset; schedule zset; dead zset; done zset; waiting zset; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; schedules zset; schedule:<name> hash; wake list; events stream; counts hash; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash; job:<id>:held list
-- argv: client tag; number count
-- item: what text; name text; lane text
-- reply: a verdict an item
-- verdicts: ok; mended; buried; dropped
-- refusals: EMQKIND; EMQVERSION
-- events: mended; dead; dropped
-- cost: O(log n) a job or key; O(lanes) for the lane without a name
-- bound: 256 items; 10000 lanes
-- moves: pending -> pending; schedule -> schedule; dead -> dead; done -> done; active -> active; nothing -> dead; pending -> dead; active -> dead
local PLACES = { 'pending', 'active', 'schedule', 'dead', 'done', 'waiting' }
local MOST_LANES = 10000

-- Takes a job out of all sets but one; answers in how many it was, and whether in that one.
local function leave_all(id, but, lanes)
  local wrong, right = 0, false
  local function look(key)
    if key == but then
      right = call('ZSCORE', key, id) and true or right
    else
      local gone = call('ZREM', key, id) --!write repair-leave
      wrong = wrong + gone
      return gone
    end
    return 0
  end
  for _, state in ipairs(PLACES) do
    local gone = look(P .. state)
    if state == 'active' then freed = freed + gone end --!write repair-freed
    if gone == 1 and state == 'pending' and ROTA then touch('') end --!write repair-default
  end
  for lane in pairs(lanes) do
    laned = laned - look(P .. lane_set(lane)) --!write repair-unlaned
    touch(lane)
  end
  return wrong, right
end
-- A job that runs stands in its lane's leases too, with the same score.
local function mend_lease(id, row, lanes)
  local wrong = 0
  for lane in pairs(lanes) do
    if row.state ~= 'active' or lane ~= row.lane then wrong = wrong + call('ZREM', lane_active(lane), id) end --!write repair-slot
  end
  if row.state == 'active' and row.lane then
    local lease = call('ZSCORE', ACTIVE, id)
    if call('ZSCORE', lane_active(row.lane), id) ~= lease then --!guard repair-lease
      call('ZADD', lane_active(row.lane), lease, id) --!write repair-lease
      wrong = wrong + 1
    end
  end
  return wrong
end
local function without_row(id, lanes)
  local places = leave_all(id, nil, lanes) + mend_lease(id, {}, lanes)
  local left = call('DEL', row_key(id), row_key(id) .. ':log') --!write repair-erase
  if call('HEXISTS', P .. 'outbox:entries', 'sweep:' .. id) == 0 then --!guard repair-swept
    left = left + call('DEL', row_key(id) .. ':children', row_key(id) .. ':results') --!write repair-erase-parent
  end
  if call('HEXISTS', P .. 'outbox:entries', 'hold:' .. id) == 0 then left = left + call('DEL', row_key(id) .. ':held') end --!write repair-erase-held
  if places + left == 0 then return 'ok' end
  tally('dropped')
  emit('dropped', id, 'places', places)
  return 'dropped ' .. places
end
-- Where a row belongs, and its score there, if it is not there already.
local function place_of(row)
  if row.state == 'pending' then return P .. lane_set(row.lane or ''), -row.priority end
  if row.state == 'done' then return P .. 'done', NOW + (tonumber(row.result_ttl_ms) or 0) end
  return P .. row.state, NOW -- a lease that is over; a time that has come; a death of now
end
local STATES_KNOWN = { pending = true, active = true, schedule = true, dead = true, done = true, waiting = true }

-- A lane's sets; answers how many of them went.
local function lane_typed(name)
  return typed(P .. lane_set(name), 'zset') + typed(lane_active(name), 'zset') --!write repair-typed-lane
end
local function job(id, hint)
  local lanes = {}
  if hint ~= '' then lanes[hint] = true end
  local fine, row = pcall(read, id)
  if fine and row.lane and lane_fits(row.lane) and row.lane ~= '' then lanes[row.lane] = true end
  local wrong = typed(row_key(id) .. ':log', 'list') --!write repair-typed-log
  if FLOWS then
    for suffix, kind in pairs({ children = 'hash', results = 'hash', held = 'list' }) do
      wrong = wrong + typed(row_key(id) .. ':' .. suffix, kind) --!write repair-typed-kin
    end
  end
  for lane in pairs(lanes) do
    wrong = wrong + lane_typed(lane) --!write repair-typed-lanes
  end
  if not fine or not row.state and call('EXISTS', row_key(id)) == 0 then return without_row(id, lanes) end --!guard repair-row
  if not STATES_KNOWN[row.state] or row.attempts and not whole(row.attempts, 0, FAR) or row.state == 'active' and not row.attempts then --!guard repair-state
    leave_all(id, P .. 'dead', lanes)
    mend_lease(id, {}, lanes)
    local reason = 'torn: its row did not say where it belongs'
    call('ZADD', P .. 'dead', NOW, id) --!write repair-bury
    call('HSET', row_key(id), 'state', 'dead', 'since', NOW, 'kind', 'dead', 'reason', reason) --!write repair-buried
    call('HSETNX', row_key(id), 'by', CLIENT) --!write repair-by
    call('HDEL', row_key(id), 'holder', 'cancel', 'hold') --!write repair-holder
    if not whole(row.attempts, 0, FAR) then call('HDEL', row_key(id), 'attempts') end --!write repair-attempts
    if ended then ended(id, { parent = row.parent, children = row.children }, 'dead', reason, '') end --!write repair-ended
    tally('dead')
    emit('dead', id, 'token', row.attempts or '0', 'reason', reason, 'error', '')
    return 'buried ' .. (row.state or 'no state')
  end
  local set, score = place_of(row)
  local ready = row.state == 'pending'
  if ready and row.lane and not ROTA then begin_rota() end
  local left, right = leave_all(id, set, lanes)
  wrong = wrong + left --!write repair-left
  if not right then
    local come = call('ZADD', set, score, id) --!write repair-enter
    wrong = wrong + come
    if ready and row.lane then laned = laned + come end --!write repair-laned
    if ready and ROTA then
      touch(row.lane or '', 1)
    elseif ready then
      made_ready = made_ready + 1 --!write repair-ready
    end
    if row.state == 'schedule' then made_ready = made_ready + 1 end --!write repair-due
  end
  wrong = wrong + mend_lease(id, row, lanes)
  -- A window's key goes by itself, also while the job lives.
  local lives = ready or row.state == 'schedule' or row.state == 'active'
  local owed = row.dedup and lives and call('HEXISTS', row_key(id), 'dedup_window_ms') == 0 --!guard repair-owed
  if owed then wrong = wrong + typed(P .. 'dedup:' .. row.dedup, 'string') end --!write repair-typed-owed
  if owed and call('SETNX', P .. 'dedup:' .. row.dedup, id) == 1 then --!guard repair-dedup
    wrong = wrong + 1
  end
  -- Whoever waits for children asks after them.
  local asks = FLOWS and row.state == 'waiting' and row.children and call('HEXISTS', ENTRIES, 'reconcile:' .. id) == 0 --!guard repair-waits
  if asks then owe(NOW, 'reconcile:' .. id, 'reconcile', '', id, '0') end --!write repair-reconcile
  if wrong == 0 then return 'ok' end
  tally('mended')
  emit('mended', id, 'state', row.state)
  return 'mended ' .. row.state
end
-- A key that names a job which is over keeps others out.
local function dedup(name)
  local key = P .. 'dedup:' .. name
  if typed(key, 'string') == 1 then --!guard repair-typed-dedup
    tally('mended')
    return 'dropped key'
  end
  local id = call('GET', key)
  if not id or call('PTTL', key) ~= -1 then return 'ok' end --!guard repair-window
  local fine, row = pcall(read, id)
  if fine and (row.state == 'pending' or row.state == 'schedule' or row.state == 'active') and row.dedup == name then return 'ok' end --!guard repair-held
  call('DEL', key) --!write repair-key
  tally('mended')
  return 'dropped key'
end
local function recount()
  if not ROTA then return 'ok' end
  settle_rota()
  if call('HLEN', LANES) > MOST_LANES then return 'ok' end --!bound repair-lanes
  local count = 0
  for _, name in ipairs(call('HKEYS', LANES)) do
    if name ~= '' then count = count + call('ZCARD', P .. lane_set(name)) end
  end
  if count == (tonumber(call('HGET', META, 'laned')) or 0) then return 'ok' end
  call('HSET', META, 'laned', count) --!write repair-count
  tally('mended')
  return 'mended laned'
end
-- A lane with ready jobs is in exactly one of ring and closed, and `lanes` says in which.
local function lane_place(name)
  local ready = call('EXISTS', P .. lane_set(name)) == 1
  if not ROTA and (name == '' or not ready) then return 'ok' end
  begin_rota()
  local lane = read_lane(call('HGET', LANES, name))
  local on_ring = call('LPOS', RING, name, 'COUNT', 0)
  local closed = call('ZSCORE', CLOSED, name)
  local fine = lane.where == 'r' and #on_ring == 1 and not closed
    or lane.where == 'c' and #on_ring == 0 and closed and ready
    or lane.where == '-' and #on_ring == 0 and not closed and not ready
  if fine then return 'ok' end --!guard repair-lane
  call('LREM', RING, 0, name) --!write repair-ring
  call('ZREM', CLOSED, name) --!write repair-closed
  lane.where, lane.credit, lane.waits = '-', 0, ready -- what a handler said of it holds
  write_lane(name, lane) --!write repair-field
  touch(name)
  tally('mended')
  return 'mended lane'
end

local function lane(name)
  local gone = lane_typed(name)
  local verdict = lane_place(name)
  if gone == 0 or verdict ~= 'ok' then return verdict end --!guard repair-lane-typed
  tally('mended')
  return 'mended lane'
end
-- What the outbox says and when it says so belong together; what says nothing goes with whoever takes it.
local function outbox_due()
  local count = FLOWS and call('HLEN', ENTRIES) or 0
  if count > MOST_LANES or count == 0 then return 'ok' end --!bound repair-outbox
  local verdict = 'ok'
  for _, entry in ipairs(call('HKEYS', ENTRIES)) do
    if not call('ZSCORE', OUTBOX, entry) then --!guard repair-due
      watch(OUTBOX, NOW)
      call('ZADD', OUTBOX, taken_at(NOW - 1), entry) --!write repair-due
      verdict = 'mended outbox'
    end
  end
  if verdict ~= 'ok' then tally('mended') end
  return verdict
end
-- A key that every queue may have. What stood in it is put back by the looks at rows, lanes and schedules.
local function own(name)
  if not OWN_TYPES[name] then return 'EMQKIND key ' .. name end --!guard repair-own
  if typed(P .. name, OWN_TYPES[name]) == 0 then return name == 'outbox' and outbox_due() or 'ok' end --!guard repair-own-typed
  if name == 'wake' then made_ready = made_ready + MOST_TOKENS end --!write repair-own-wake
  tally('dropped')
  return 'dropped key'
end

-- A schedule is found by its slot, or rests at the end; a slot without one would be told to every claim.
local function slot_of(name)
  local key = schedule_key(name)
  local is = call('TYPE', key).ok
  if is ~= 'hash' and is ~= 'none' then return 'EMQKIND schedule ' .. name end --!guard repair-no-definition
  local stands, found = call('HMGET', key, 'slot', 'paused'), call('ZSCORE', SCHEDULES, name)
  if call('EXISTS', key) == 0 then
    if not found then return 'ok' end --!guard repair-no-schedule
    call('ZREM', SCHEDULES, name) --!write repair-unslot
    if call('EXISTS', SCHEDULES) == 0 then call('HDEL', META, 'schedules') end --!write repair-no-schedules
    tally('dropped')
    return 'dropped slot'
  end
  local slot = whole(stands[1] or '0', 0, FAR) or 0
  local due = (stands[2] or slot == 0) and math.huge or slot
  if tonumber(found) == due and meta[9] then return 'ok' end --!guard repair-slot-fine
  call('HSET', META, 'schedules', 1) --!write repair-schedules
  stand(name, slot, stands[2])
  tally('mended')
  return 'mended slot'
end

local verdicts = each(3, 3, function(at)
  local what, name, hint = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if what == 'job' then return job(name, lane_fits(hint) and hint or '') end
  if what == 'key' then return own(name) end
  if what == 'dedup' then return dedup(name) end
  if what == 'schedule' then return slot_of(name) end
  if what ~= 'lane' or not lane_fits(name) then return 'EMQKIND ' .. what .. ' ' .. name end --!guard repair-what
  local verdict = lane(name)
  if name ~= '' then return verdict end
  local counted = recount()
  return verdict == 'ok' and counted or verdict
end)
bell()
flush_tally()
return verdicts
