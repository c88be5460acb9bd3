-- verb: counts
-- purpose: How many jobs are in each state, whether the queue is paused, and what has been counted so far.
-- section: Protocol, section 5
-- flags: no-writes
-- include:
-- keys: meta hash; pending zset; active zset; schedule zset; dead zset; waiting zset; done zset; counts hash
-- argv: client tag; number count
-- reply: pending, active, schedule, dead, waiting, done; ms the queue was paused at or 0; counters as names and values
-- verdicts:
-- refusals: EMQVERSION
-- events:
-- cost: O(1)
-- bound: none needed
-- moves:
local reply = {}
local laned = tonumber(call('HGET', META, 'laned')) or 0
for _, state in ipairs({ 'pending', 'active', 'schedule', 'dead', 'waiting', 'done' }) do
  reply[#reply + 1] = call('ZCARD', P .. state)
end
reply[1] = reply[1] + laned
reply[#reply + 1] = meta[2] or '0'
reply[#reply + 1] = call('HGETALL', P .. 'counts')
return reply
