-- verb: obliterate
-- purpose: Close a queue and erase what is in it, in bounded rounds; its own keys go last, `meta` as the last of them.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, number, row, limits, rota, erase, typed
-- flows: outbox
-- keys: meta hash; pending zset; active zset; schedule zset; dead zset; done zset; waiting zset; schedules zset; schedule:<name> hash; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash; job:<id>:held list
-- argv: client tag; number count; bound count; force count; last count; left_over text
-- reply: jobs erased; named keys erased; jobs and schedules left
-- verdicts:
-- refusals: EMQKIND; EMQSTATE; EMQVERSION
-- events:
-- cost: O(log n) a job
-- bound: bound, at most 1000 jobs or schedules, 256 keys, and 192 lanes
-- moves: pending -> nothing; active -> nothing; schedule -> nothing; waiting -> nothing; dead -> nothing; done -> nothing
local bound, force, last = whole(ARGV[3], 1, 1000), ARGV[4] == '1', ARGV[5] == '1'
if not bound or #ARGV - 5 > 256 then return redis.error_reply('EMQKIND obliterate: its bound or its names are out of range') end --!guard argv
if not force then
  if not meta[2] and meta[1] then return redis.error_reply('EMQSTATE running') end --!guard not-paused
  local running = call('TYPE', ACTIVE).ok == 'zset' and call('ZCARD', ACTIVE) or 0
  if running > 0 then return redis.error_reply('EMQSTATE active ' .. running) end --!guard active
end
if meta[1] and not meta[3] then call('HSET', META, 'closing', NOW) end --!write closing

for name, kind in pairs(OWN_TYPES) do
  typed(P .. name, kind) --!write gone-typed
end
local gone, room = 0, bound
-- A parent in another queue learns of its child's end, and children in other queues of their parent's.
local function news(id, above, children, state, attempts)
  if children and call('HLEN', row_key(id) .. ':children') > call('HLEN', row_key(id) .. ':results') then --!guard gone-sweep
    owe(NOW, 'sweep:' .. id, 'sweep', '', id, '0', 'ended')
  end
  local parent, queue, name = string.match(above or '', '^(%S+) (%S+) (.*)$')
  if parent and state ~= 'dead' and state ~= 'done' then --!guard gone-tell
    owe(NOW, 'tell:' .. id, 'tell', queue, parent, id, name, outcome('removed', attempts or '0', 'its queue was obliterated', ''))
  end
end
local function clear(key)
  local ids = room > 0 and call('ZRANGE', key, 0, room - 1) or {} --!bound obliterate
  for _, id in ipairs(ids) do
    local fine, row = pcall(call, 'HMGET', row_key(id), 'dedup', 'result_ttl_ms', 'lane', 'parent', 'children', 'state', 'attempts')
    if fine and row[1] then call('DEL', P .. 'dedup:' .. row[1]) end --!write gone-dedup
    if fine and row[3] then typed(lane_active(row[3]), 'zset') end --!write gone-typed-slot
    if fine and row[3] then call('ZREM', lane_active(row[3]), id) end --!write gone-slot
    if fine and FLOWS then news(id, row[4], row[5], row[6], row[7]) end --!write gone-told
    erase(id, FLOWS)
    if fine then tell(id, { result_ttl_ms = row[2] }, 'removed') end
    call('ZREM', key, id) --!write gone-leave
  end
  gone, room = gone + #ids, room - #ids
end
for _, state in ipairs({ 'pending', 'schedule', 'dead', 'done', 'waiting', 'active' }) do
  clear(P .. state)
end
-- Lanes go from where they stand, and what is counted of their jobs with them: `resume` may yet find the rest.
local MOST_LANES = 64
local ring, closed, lanes = P .. 'ring', P .. 'closed', P .. 'lanes'
local function clear_lane(name)
  if name ~= '' then
    local before = gone
    typed(P .. lane_set(name), 'zset') --!write gone-typed-lane
    clear(P .. lane_set(name))
    if gone > before then call('HINCRBY', META, 'laned', before - gone) end --!write gone-laned
    if call('EXISTS', P .. lane_set(name)) == 1 then return false end --!guard lane-left
    call('DEL', lane_active(name))
  end
  call('HDEL', lanes, name) --!write gone-lane
  return true
end
if room > 0 then --!guard lanes-last
  for _, name in ipairs(call('LRANGE', ring, 0, MOST_LANES - 1)) do --!bound gone-ring
    if not clear_lane(name) then break end
    call('LPOP', ring) --!write gone-ring
  end
  for _, name in ipairs(call('ZRANGE', closed, 0, MOST_LANES - 1)) do --!bound gone-closed
    if not clear_lane(name) then break end
    call('ZREM', closed, name) --!write gone-closed
  end
  if call('EXISTS', ring, closed) == 0 then --!guard lanes-rest
    -- Those that stand nowhere have settings only, or were torn from their place.
    for _, name in ipairs(call('HRANDFIELD', lanes, MOST_LANES)) do --!bound gone-rest
      if not clear_lane(name) then break end
    end
  end
end
for _, name in ipairs(room > 0 and call('ZRANGE', P .. 'schedules', 0, room - 1) or {}) do
  call('DEL', P .. 'schedule:' .. name) --!write gone-schedule
  call('ZREM', P .. 'schedules', name) --!write gone-from-slot
end
if call('EXISTS', P .. 'schedules') == 0 then call('HDEL', META, 'schedules') end --!write gone-schedules

local left = call('HLEN', P .. 'lanes')
for _, set in ipairs({ 'pending', 'active', 'schedule', 'dead', 'done', 'waiting', 'schedules' }) do
  left = left + call('ZCARD', P .. set)
end
-- What other queues must hear goes first, unless they never shall.
if FLOWS and not force then left = left + call('ZCARD', OUTBOX) end --!guard gone-owed
local erased = 0
if left == 0 then --!guard left
  for i = 6, #ARGV do
    if ARGV[i] ~= 'meta' and ARGV[i] ~= 'void' then erased = erased + call('DEL', P .. ARGV[i]) end --!write gone-name
  end
  if last then --!guard last
    call('DEL', P .. 'wake', P .. 'ring', P .. 'closed', P .. 'lanes', P .. 'counts', P .. 'events', P .. 'outbox', P .. 'outbox:entries') --!write gone-own
    call('DEL', META) --!write gone-meta
  end
end
return { gone, erased, left }
