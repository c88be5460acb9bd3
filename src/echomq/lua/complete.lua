-- verb: complete
-- purpose: Retire jobs that succeeded, with their results on the `done` shelf if they asked for that.
-- section: Protocol, sections 1 and 5
-- flags: allow-oom
-- include: now, once, row, limits, rota, place, torn, items, emit, bell, erase, shelf, ending, fence
-- keys: meta hash; pending zset; active zset; done zset; job:<id> hash; job:<id>:log list; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; events stream; counts hash; wake list
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag; result bytes
-- reply: a verdict an item
-- verdicts: ok
-- refusals: EMQSTALE; EMQGONE; EMQVERSION
-- events: completed; trimmed
-- cost: O(log n) an item
-- bound: 256 items
-- moves: active -> done; active -> nothing; pending -> done; pending -> nothing; done -> nothing
local kept, refused = recall()
if kept or refused then return kept or refused end

local fenced = fence(ARGV, 3, 4, read_ending)
local verdicts = each(3, 4, function(at)
  local id, token, nonce = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local row, refusal = fenced(id, token, nonce)
  if not row then
    -- The late holder: reaped back to pending, claimed by nobody since, unchanged since. Its work is done; accept it.
    row = read_ending(id)
    if row.state ~= 'pending' or not holds(row, token, nonce) or not call('ZSCORE', P .. lane_set(row.lane or ''), id) then return refusal end --!guard late
  end
  finish(id, row, 'completed', 'result', ARGV[at + 3])
  emit('completed', id, 'token', token)
  return 'ok'
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
