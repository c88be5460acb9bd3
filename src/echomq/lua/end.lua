-- verb: end
-- purpose: A fenced ending that is neither success nor death: cancelled or discarded, with a reason.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, once, row, limits, rota, place, torn, items, emit, bell, erase, shelf, ending, cancel, fence
-- flows: read, bury, outbox, kin
-- keys: meta hash; waiting zset; active zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; events stream; counts hash; wake list; pending zset; schedule zset; dead zset; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag; kind text; reason text
-- reply: a verdict an item
-- verdicts: ok
-- refusals: EMQSTALE; EMQGONE; EMQKIND; EMQVERSION
-- events: cancelled; discarded; dead; trimmed
-- cost: O(log n) an item
-- bound: 256 items
-- moves: active -> done; active -> nothing; active -> dead; done -> nothing
local kept, refused = recall()
if kept or refused then return kept or refused end

local fenced = fence(ARGV, 3, 5, read_ending)
local verdicts = each(3, 5, function(at)
  local id, kind = ARGV[at], ARGV[at + 3]
  if kind ~= 'cancelled' and kind ~= 'discarded' then return 'EMQKIND kind ' .. kind end --!guard kind
  local row, refusal = fenced(id, ARGV[at + 1], ARGV[at + 2])
  if not row then return refusal end --!guard fence
  if kind == 'cancelled' and swept(id, row, ARGV[at + 4]) then return 'ok' end --!guard end-swept
  finish(id, row, kind, 'reason', ARGV[at + 4])
  emit(kind, id, 'token', ARGV[at + 1], 'reason', ARGV[at + 4])
  return 'ok'
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
