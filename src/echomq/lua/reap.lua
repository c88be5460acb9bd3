-- verb: reap
-- purpose: Take expired leases back: the round that a claim makes, by itself (also while paused).
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, number, emit, row, limits, rota, bell, read, place, erase, shelf, ending, bury, cancel, again, round, reap
-- flows: outbox, kin
-- keys: meta hash; waiting zset; active zset; pending zset; dead zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; wake list; events stream; counts hash; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; schedule zset; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count; bound count
-- reply: how many entries were handled; as many as the bound means there may be more
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events: stalled; dead; cancelled; dropped; torn; trimmed
-- cost: O(log n) an entry
-- bound: bound
-- moves: active -> pending; active -> dead; active -> done; active -> nothing; done -> nothing; dead -> nothing
local bound = whole(ARGV[3], 1, 10000)
if not bound then return redis.error_reply('EMQKIND bound ' .. ARGV[3]) end --!guard bound
local handled = reap(bound)
bell()
flush_tally()
return handled
