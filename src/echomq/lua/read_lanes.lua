-- verb: read_lanes
-- purpose: Lanes by name or by pages: settings, how much waits and runs, and why a lane is not served.
-- section: Protocol, sections 5 and 6
-- flags: no-writes
-- include: now, number, row, begins, limits, rota
-- keys: meta hash; pending zset; job:<id> hash; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash
-- argv: client tag; number count; cursor count; count count; name text
-- reply: the next cursor; then for each lane: name, settings, pending, active, age of its head ms, reasons why it is closed, ms until it is looked at again or -1
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(log n) a lane
-- bound: 256 names; about count lanes a page
-- moves:
local cursor, count = ARGV[3], whole(ARGV[4], 1, 256)
if not count or not whole(cursor, 0, 9007199254740992) or #ARGV > 260 then --!guard page
  return redis.error_reply('EMQKIND read_lanes: cursor, count or the number of names is out of range')
end
local names, texts, next_cursor = {}, {}, '0'
if #ARGV > 4 then
  for i = 5, #ARGV do
    names[i - 4], texts[i - 4] = ARGV[i], call('HGET', LANES, ARGV[i])
  end
elseif ROTA then
  local page = call('HSCAN', LANES, cursor, 'COUNT', count)
  next_cursor = page[1]
  for i = 1, #page[2], 2 do
    local name, text = page[2][i], page[2][i + 1]
    -- A lane that was emptied is on the ring until its turn comes, and is nothing to be told of.
    if string.find(text, ' ', 1, true) or call('EXISTS', P .. lane_set(name)) == 1 then --!guard listed
      names[#names + 1], texts[#texts + 1] = name, text
    end
  end
elseif call('EXISTS', P .. 'pending') == 1 then
  names[1] = '' -- a queue without a rota has one lane
end
local reply = { next_cursor }
for i, name in ipairs(names) do
  local lane, set, reasons = read_lane(texts[i]), P .. lane_set(name), {}
  local again = lane.limits and shut(lane.limits, lane_active(name), reasons)
  local head, age = call('ZRANGE', set, 0, 0), 0
  if head[1] then
    local fine, since = pcall(call, 'HGET', row_key(head[1]), 'since')
    age = math.max(0, NOW - (fine and tonumber(since) or NOW)) --!guard head-since
  end
  local wait = again and again < math.huge and math.max(0, again - NOW) or -1
  reply[#reply + 1] = { name, lane.limits and spell_limits(lane.limits) or '', call('ZCARD', set), call('ZCARD', lane_active(name)), age, reasons, wait }
end
return reply
