-- verb: read_schedules
-- purpose: A page of recurring schedules by their next slot, those that are due, or some by name.
-- section: Protocol, section 5
-- flags: no-writes
-- include: now, number
-- keys: meta hash; schedules zset; schedule:<name> hash
-- argv: client tag; number count; offset count; count count; due count; name text
-- reply: now ms; how many there are; then for each: name, definition
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(log n + count)
-- bound: count, at most 256
-- moves:
local offset, count = whole(ARGV[3], 0, FAR), whole(ARGV[4], 1, 256)
if not (offset and count) or #ARGV - 5 > 256 then return redis.error_reply('EMQKIND offset, count or names are out of range') end --!guard page
local names = { unpack(ARGV, 6) }
if #names == 0 then
  local till = ARGV[5] == '1' and NOW or '+inf'
  names = call('ZRANGE', P .. 'schedules', '-inf', till, 'BYSCORE', 'LIMIT', offset, count) --!bound schedules
end
local reply = { NOW, call('ZCARD', P .. 'schedules') }
for _, name in ipairs(names) do
  local definition = call('HGETALL', P .. 'schedule:' .. name)
  if #definition > 0 then reply[#reply + 1] = { name, definition } end
end
return reply
