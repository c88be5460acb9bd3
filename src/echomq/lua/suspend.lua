-- verb: suspend
-- purpose: Give up leases until the jobs' children have ended, spending nothing.
-- section: Protocol, section 7
-- flags: allow-oom
-- include: now, once, row, flows, limits, rota, read, place, torn, items, emit, bell, erase, shelf, ending, bury, cancel, fence
-- flows: outbox, kin
-- keys: meta hash; pending zset; active zset; schedule zset; waiting zset; dead zset; done zset; job:<id> hash; job:<id>:log list; job:<id>:children hash; job:<id>:results hash; job:<id>:held list; outbox zset; outbox:entries hash; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag
-- reply: a verdict an item
-- verdicts: waiting; pending; dead; cancelled
-- refusals: EMQSTALE; EMQGONE; EMQVERSION
-- events: suspended; ready; dead; cancelled; trimmed
-- cost: O(log n) an item
-- bound: 256 items
-- moves: active -> waiting; active -> pending; active -> dead; active -> done; active -> nothing; done -> nothing
local kept, refused = recall()
if kept or refused then return kept or refused end

local fenced = fence(ARGV, 3, 3, read)
local verdicts = each(3, 3, function(at)
  local id = ARGV[at]
  local row, refusal = fenced(id, ARGV[at + 1], ARGV[at + 2])
  if not row then return refusal end --!guard fence
  if row.cancel then return cancel_now(id, row, row.cancel) end --!guard suspend-asked
  place(id, row, 'waiting', NOW)
  release_holder(id, 'unfit_since')
  emit('suspended', id, 'token', ARGV[at + 1])
  return consider(id)
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
