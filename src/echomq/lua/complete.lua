-- verb: complete
-- purpose: Retire jobs that succeeded, with their results on the `done` shelf if they asked for that, and admit their follow-ups.
-- section: Protocol, sections 1 and 5
-- flags: allow-oom
-- include: now, once, row, follows, limits, rota, place, torn, items, emit, bell, erase, shelf, ending, fence
-- flows: number, moment, lane, read, bury, cancel, outbox, kin, dedup, nodes, completing
-- keys: meta hash; waiting zset; pending zset; active zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; events stream; counts hash; wake list; schedule zset; dead zset; job:<id>:children hash; job:<id>:results hash; outbox zset; outbox:entries hash
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag; result bytes; follow words
-- reply: a verdict an item
-- verdicts: ok; dead; cancelled
-- refusals: EMQSTALE; EMQGONE; EMQSTATE; EMQKIND; EMQVERSION
-- events: completed; enqueued; dead; cancelled; trimmed
-- cost: O(log n) an item
-- bound: 256 items
-- moves: active -> done; active -> nothing; active -> dead; pending -> done; pending -> nothing; pending -> dead; nothing -> pending; nothing -> schedule; nothing -> waiting; done -> nothing
local kept, refused = recall()
if kept or refused then return kept or refused end

local fenced = fence(ARGV, 3, 5, read_ending)
local verdicts = each(3, 5, function(at)
  local id, token, nonce = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local row, refusal = fenced(id, token, nonce)
  if not row then
    -- The late holder: reaped back to pending, claimed by nobody since, unchanged since. Its work is done; accept it.
    row = read_ending(id)
    if row.state ~= 'pending' or not holds(row, token, nonce) or not call('ZSCORE', P .. lane_set(row.lane or ''), id) then return refusal end --!guard late
  end
  local verdict = row.children and unsettled(id, row)
  if not verdict and ARGV[at + 4] ~= '' then verdict = follow(ARGV[at + 4]) end --!guard follow
  if verdict then return verdict end
  finish(id, row, 'completed', 'result', ARGV[at + 3])
  emit('completed', id, 'token', token)
  return 'ok'
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
