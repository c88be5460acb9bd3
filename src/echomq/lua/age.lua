-- verb: age
-- purpose: The job next in turn, and how long it has been ready.
-- section: Protocol, section 5
-- flags: no-writes
-- include: now, row
-- keys: meta hash; pending zset; job:<id> hash
-- argv: client tag; number count
-- reply: id and age ms; empty when nothing is ready
-- verdicts:
-- refusals: EMQVERSION
-- events:
-- cost: O(log n)
-- bound: one job
-- moves:
local head = call('ZRANGE', SETS.pending, 0, 0)
if not head[1] then return {} end
local since = tonumber(call('HGET', row_key(head[1]), 'since')) or NOW
return { head[1], math.max(0, NOW - since) }
