-- verb: advance
-- purpose: For tests only: move every moment that a queue waits for back, as if so much time had passed.
-- section: How-to, test your tasks
-- flags: allow-oom
-- include: now, number, row, limits, rota, bell
-- keys: meta hash; pending zset; active zset; schedule zset; waiting zset; schedules zset; schedule:<name> hash; job:<id> hash; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; wake list
-- argv: client tag; number count; by ms; most count
-- reply: 1 and how many jobs, lanes and schedules were looked at; or 0 and how many there are, if these are more than `most`: nothing was changed
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(n log n) by all there is
-- bound: most
-- moves:
local by, most = whole(ARGV[3], 1, LONGEST), whole(ARGV[4], 1, FAR)
if not (by and most) then return redis.error_reply('EMQKIND advance: by or most is out of range') end
local lanes = ROTA and call('HGETALL', LANES) or {}
local total = #lanes / 2 + (tonumber(call('HGET', META, 'laned')) or 0)
for _, set in ipairs({ 'pending', 'schedule', 'active', 'waiting', 'schedules' }) do
  total = total + call('ZCARD', P .. set)
end
if total > most then return { 0, total } end

local function text_of(moment)
  return string.format('%.0f', math.max(0, moment - by))
end
-- Moves the scores of a set; answers its members.
local function moved(set)
  local found, members = call('ZRANGE', P .. set, 0, -1, 'WITHSCORES'), {}
  for i = 1, #found, 2 do
    members[#members + 1] = found[i]
    local score = tonumber(found[i + 1])
    if score and score < math.huge then call('ZADD', P .. set, 'XX', text_of(score), found[i]) end
  end
  return members
end
local MOMENTS = { 'since', 'due_ms', 'expires_ms', 'deadline_ms', 'unfit_since' }
local function move_rows(ids)
  for _, id in ipairs(ids) do
    local kept = call('HMGET', row_key(id), unpack(MOMENTS))
    for i, name in ipairs(MOMENTS) do
      local moment = whole(kept[i], 1, FAR)
      if moment then call('HSET', row_key(id), name, text_of(moment)) end
    end
  end
end
local function move_limits(limits)
  limits.tat, limits.till = math.max(0, limits.tat - by), math.max(0, limits.till - by)
end

move_rows(moved('schedule'))
-- What these are scored by is no moment at which something is due. A lease's end is one, and its worker counts on it.
for _, set in ipairs({ 'pending', 'active', 'waiting' }) do
  move_rows(call('ZRANGE', P .. set, 0, -1))
end
for i = 1, #lanes, 2 do
  if lanes[i] ~= '' then move_rows(call('ZRANGE', P .. lane_set(lanes[i]), 0, -1)) end
  local lane = read_lane(lanes[i + 1])
  if lane.limits then
    move_limits(lane.limits)
    lane.waits = lane.where ~= '-'
    write_lane(lanes[i], lane)
  end
end
if ROTA then moved('closed') end
if LIMITS then
  move_limits(LIMITS)
  local text = spell_limits(LIMITS)
  if text == '' then
    call('HDEL', META, 'limits')
  else
    call('HSET', META, 'limits', text)
  end
end
for _, name in ipairs(moved('schedules')) do
  local key = P .. 'schedule:' .. name
  local slot = whole(call('HGET', key, 'slot'), 1, FAR)
  -- Its calendar goes with it: whoever fires it reckons its rule so much later. No slot is 0, which is the end.
  if slot then
    call('HSET', key, 'slot', string.format('%.0f', math.max(1, slot - by)))
    call('HINCRBY', key, 'moved', by)
  end
end
-- A worker that is parked has set its timer by what was due before.
made_ready = 1
bell()
return { 1, total }
