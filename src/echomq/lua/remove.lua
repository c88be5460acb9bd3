-- verb: remove
-- purpose: Erase jobs that do not run, results and all; a running one must be cancelled instead.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, once, row, limits, rota, read, place, torn, items, emit, bell, erase, remove
-- flows: shelf, bury, outbox, kin
-- keys: meta hash; waiting zset; pending zset; schedule zset; dead zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; events stream; counts hash; wake list; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count
-- item: id tag
-- reply: a verdict an item
-- verdicts: ok
-- refusals: EMQGONE; EMQSTATE; EMQVERSION; EMQSTALE
-- events: removed
-- cost: O(log n) an item
-- bound: 256 items
-- moves: pending -> nothing; schedule -> nothing; waiting -> nothing; dead -> nothing; done -> nothing
local kept, refused = recall()
if kept or refused then return kept or refused end

local verdicts = each(3, 1, function(at)
  local id = ARGV[at]
  local row = read(id)
  if not row.state then return 'EMQGONE' end
  if row.state == 'active' then return 'EMQSTATE active' end --!guard remove-active
  remove_now(id, row)
  return 'ok'
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
