-- verb: promote
-- purpose: Move jobs whose time has come to pending, and closed lanes to the ring: the round that a claim makes, by itself (also while paused).
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, number, emit, row, limits, rota, bell, read, place, erase, shelf, ending, cancel, again, round, promote, reopen
-- flows: bury, outbox, kin
-- keys: meta hash; waiting zset; schedule zset; pending zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; wake list; events stream; counts hash; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; dead zset; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count; bound count
-- reply: how many entries were handled; as many as the bound means there may be more
-- verdicts:
-- refusals: EMQKIND; EMQVERSION
-- events: promoted; cancelled; dropped; torn; trimmed
-- cost: O(log n) an entry
-- bound: bound
-- moves: schedule -> pending; schedule -> done; schedule -> nothing; done -> nothing
local bound = whole(ARGV[3], 1, 10000)
if not bound then return redis.error_reply('EMQKIND bound ' .. ARGV[3]) end --!guard bound
local handled = promote(bound)
if ROTA then
  settle_rota() -- what became ready by that takes part in the rota
  handled = math.max(handled, reopen(bound))
end
bell()
flush_tally()
return handled
