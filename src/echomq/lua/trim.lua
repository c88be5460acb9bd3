-- verb: trim
-- purpose: Drop what has been kept long enough: results past their time, and the dead beyond the queue's limits.
-- section: Protocol, sections 1 and 5
-- flags: allow-oom
-- include: now, number, emit, row, erase, shelf
-- keys: meta hash; done zset; dead zset; job:<id> hash; job:<id>:log list; dedup:<key> string; events stream; counts hash; job:<id>:children hash; job:<id>:results hash
-- argv: client tag; number count; bound count
-- reply: how many jobs were dropped; as many as the bound means there may be more
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events: trimmed
-- cost: O(log n) a job
-- bound: bound
-- moves: done -> nothing; dead -> nothing
local bound = whole(ARGV[3], 1, 10000)
if not bound then return redis.error_reply('EMQKIND trim: its bound is out of range') end --!guard argv
local gone = trim_shelves(bound)
flush_tally()
return gone
