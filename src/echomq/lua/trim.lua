-- verb: trim
-- purpose: Drop what has been kept long enough: results past their time, and the dead beyond the queue's limits, or beyond others.
-- section: Protocol, sections 1 and 5
-- flags: allow-oom
-- include: now, number, emit, row, erase, shelf
-- keys: meta hash; done zset; dead zset; job:<id> hash; job:<id>:log list; dedup:<key> string; events stream; counts hash; job:<id>:children hash; job:<id>:results hash
-- argv: client tag; number count; bound count; done_max count; dead_max count; dead_age ms
-- reply: how many jobs were dropped; as many as the bound means there may be more
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events: trimmed
-- cost: O(log n) a job
-- bound: bound
-- moves: done -> nothing; dead -> nothing
local bound = whole(ARGV[3], 1, 10000)
local wanted, fits = {}, true
for i = 1, 3 do
  wanted[i] = ARGV[3 + i] ~= '' and whole(ARGV[3 + i], 0, LONGEST)
  fits = fits and wanted[i] ~= nil --!guard wanted
end
if not (bound and fits) then return redis.error_reply('EMQKIND trim: its bound or a limit is out of range') end --!guard argv
local gone = trim_shelves(bound, wanted)
flush_tally()
return gone
