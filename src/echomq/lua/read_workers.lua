-- verb: read_workers
-- purpose: The workers that are alive and what they run, those heard of last first.
-- section: Protocol, section 2
-- flags: no-writes
-- include: now, number
-- keys: meta hash; workers zset; worker:<tag> hash
-- argv: client tag; number count; offset count; count count
-- reply: now ms; how many were looked at; then for each worker: its client's tag, what it said
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events:
-- cost: O(log n + count)
-- bound: count, at most 256
-- moves:
local offset, count = whole(ARGV[3], 0, FAR), whole(ARGV[4], 1, 256)
if not (offset and count) then return redis.error_reply('EMQKIND read_workers: its offset or count is out of range') end --!guard page
local tags = call('ZRANGE', P .. 'workers', '+inf', '(' .. NOW, 'BYSCORE', 'REV', 'LIMIT', offset, count) --!bound read-workers
local reply = { NOW, #tags }
for _, tag in ipairs(tags) do
  local said = call('HGETALL', P .. 'worker:' .. tag)
  if #said > 0 then reply[#reply + 1] = { tag, said } end --!guard worker-gone
end
return reply
