-- verb: find
-- purpose: Ids of a set's jobs by task, lane, text of their failure, or age, in one bounded step.
-- section: Protocol, section 5
-- flags: no-writes
-- include: now, number, row, states
-- keys: meta hash; pending zset; active zset; lane:<name>:pending zset; lane:<name>:active zset; schedule zset; dead zset; done zset; waiting zset; job:<id> hash
-- argv: client tag; number count; state text; lane text; of_lane count; offset count; bound count; reverse count; task text; error text; before_ms ms
-- reply: now ms; size of the set; how many were looked at; then the ids that fit
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(log n + bound)
-- bound: bound, at most 1000
-- moves:
local lane, of_lane = ARGV[4], ARGV[5] == '1'
local set = state_set(ARGV[3], of_lane and '' or lane)
if not set then return redis.error_reply('EMQKIND state ' .. ARGV[3] .. (lane ~= '' and ' of a lane' or '')) end --!guard state
local offset, bound, before = whole(ARGV[6], 0, FAR), whole(ARGV[7], 1, 1000), whole(ARGV[11], 0, FAR)
if not (offset and bound and before) then return redis.error_reply('EMQKIND find: its offset, bound or before_ms is out of range') end --!guard argv
local task, text = ARGV[9], ARGV[10]

-- The failure as people read it: `type: message`.
local function failure(json)
  local fine, error = pcall(cjson.decode, json)
  if not fine or type(error) ~= 'table' then return json end
  return tostring(error.type) .. ': ' .. tostring(error.message)
end
local function fits(id)
  local row = call('HMGET', row_key(id), 'task', 'lane', 'since', 'error', 'reason')
  if task ~= '' and row[1] ~= task then return false end --!guard of-task
  if of_lane and (row[2] or '') ~= lane then return false end --!guard of-lane
  if before > 0 and (tonumber(row[3]) or 0) >= before then return false end --!guard before
  if text == '' then return true end
  return string.find(row[4] and failure(row[4]) or '', text, 1, true) ~= nil or string.find(row[5] or '', text, 1, true) ~= nil --!guard of-error
end

local ids = call(ARGV[8] == '1' and 'ZREVRANGE' or 'ZRANGE', set, offset, offset + bound - 1) --!bound find
local reply = { NOW, call('ZCARD', set), #ids }
for _, id in ipairs(ids) do
  local fine, answer = pcall(fits, id) -- a row that cannot be read fits nothing
  if fine and answer then reply[#reply + 1] = id end
end
return reply
