-- verb: release
-- purpose: Give jobs back to pending, spending nothing (shutdown, an operator's word).
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, once, row, limits, rota, read, place, torn, items, emit, bell, erase, shelf, ending, cancel, again, fence
-- flows: bury, outbox, kin
-- keys: meta hash; waiting zset; active zset; pending zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash; schedule zset; dead zset; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag
-- reply: a verdict an item
-- verdicts: ok; cancelled
-- refusals: EMQSTALE; EMQGONE; EMQVERSION
-- events: released; cancelled; trimmed
-- cost: O(log n) an item
-- bound: 256 items
-- moves: active -> pending; active -> done; active -> nothing; done -> nothing; active -> dead
local kept, refused = recall()
if kept or refused then return kept or refused end

local fenced = fence(ARGV, 3, 3, read)
local verdicts = each(3, 3, function(at)
  local id, token = ARGV[at], ARGV[at + 1]
  local row, refusal = fenced(id, token, ARGV[at + 2])
  if not row then return refusal end --!guard fence
  local verdict = again(id, row, 'pending', -row.priority)
  if verdict then return verdict end
  release_holder(id)
  emit('released', id, 'token', token)
  return 'ok'
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
