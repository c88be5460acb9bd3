-- verb: redrive
-- purpose: Begin a new life for dead jobs: budgets, times and error reset, token and checkpoint kept, dedup key taken again or refused.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, once, row, limits, rota, read, place, torn, items, emit, bell, dedup, redrive
-- flows: outbox
-- keys: meta hash; pending zset; dead zset; waiting zset; outbox zset; outbox:entries hash; job:<id> hash; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count
-- item: id tag
-- reply: a verdict an item
-- verdicts: ok; duplicate
-- refusals: EMQGONE; EMQSTATE; EMQVERSION; EMQSTALE
-- events: redriven
-- cost: O(log n) an item
-- bound: 256 items
-- moves: dead -> pending; dead -> waiting
local kept, refused = recall()
if kept or refused then return kept or refused end

local verdicts = each(3, 1, function(at)
  local id = ARGV[at]
  local row = read(id)
  if not row.state then return 'EMQGONE' end
  if row.state ~= 'dead' then return 'EMQSTATE ' .. row.state end --!guard redrive-state
  return redrive_now(id, row)
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
