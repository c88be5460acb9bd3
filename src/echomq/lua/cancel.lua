-- verb: cancel
-- purpose: End jobs that do not run; ask those that do, by channel and by heartbeat.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, once, row, limits, rota, read, place, torn, items, emit, bell, erase, shelf, ending, cancel, ask
-- flows: bury, outbox, kin
-- keys: meta hash; waiting zset; pending zset; active zset; schedule zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; events stream; counts hash; wake list; dead zset; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count
-- item: id tag; dedup text; reason text
-- reply: a verdict an item
-- verdicts: cancelled; asked
-- refusals: EMQGONE; EMQSTATE; EMQVERSION; EMQSTALE
-- events: cancelled; cancel_requested; trimmed
-- cost: O(log n) an item
-- bound: 256 items
-- moves: pending -> done; pending -> nothing; schedule -> done; schedule -> nothing; waiting -> done; waiting -> nothing; active -> active; done -> nothing
local kept, refused = recall()
if kept or refused then return kept or refused end

local verdicts = each(3, 3, function(at)
  local id, reason = ARGV[at], ARGV[at + 2]
  if ARGV[at + 1] ~= '' then id = call('GET', P .. 'dedup:' .. ARGV[at + 1]) or '' end --!guard cancel-dedup
  local row = read(id)
  if not row.state then return 'EMQGONE' end
  if row.state == 'pending' or row.state == 'schedule' or row.state == 'waiting' then return cancel_now(id, row, reason) end --!guard cancel-now
  if row.state ~= 'active' then return 'EMQSTATE ' .. row.state end --!guard cancel-state
  return ask_to_stop(id, row, reason)
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
