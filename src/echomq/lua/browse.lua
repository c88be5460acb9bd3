-- verb: browse
-- purpose: One page of a set, in its order or against it, with rows.
-- section: Protocol, section 5
-- flags: no-writes
-- include: now, number, row, states
-- keys: meta hash; pending zset; active zset; lane:<name>:pending zset; lane:<name>:active zset; schedule zset; dead zset; done zset; waiting zset; job:<id> hash
-- argv: client tag; number count; state text; offset count; count count; reverse count; lane text
-- reply: now ms; size of the set; then for each job: id, score, row
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(log n + count)
-- bound: count, at most 256
-- moves:
local set = state_set(ARGV[3], ARGV[7])
if not set then return redis.error_reply('EMQKIND state ' .. ARGV[3] .. (ARGV[7] ~= '' and ' of a lane' or '')) end --!guard state
local offset, count = whole(ARGV[4], 0, FAR), whole(ARGV[5], 1, 256)
if not (offset and count) then return redis.error_reply('EMQKIND offset or count is out of range') end --!guard page
local verb = ARGV[6] == '1' and 'ZREVRANGE' or 'ZRANGE'
local page = call(verb, set, offset, offset + count - 1, 'WITHSCORES')
local reply = { NOW, call('ZCARD', set) }
for i = 1, #page, 2 do
  reply[#reply + 1] = { page[i], page[i + 1], call('HGETALL', row_key(page[i])) }
end
return reply
