-- verb: progress
-- purpose: Note how far the work is; the next note replaces it.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, once, row, torn, items, emit, fence
-- keys: meta hash; active zset; job:<id> hash; once:<client>:<verb> string; events stream; counts hash
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag; data json
-- reply: a verdict an item
-- verdicts: ok
-- refusals: EMQSTALE; EMQGONE; EMQVERSION
-- events: progress
-- cost: O(log n) an item
-- bound: 256 items
-- moves: active -> active
local kept, refused = recall()
if kept or refused then return kept or refused end

local fenced = fence(ARGV, 3, 4, read_ending)
local verdicts = each(3, 4, function(at)
  local id = ARGV[at]
  local row, refusal = fenced(id, ARGV[at + 1], ARGV[at + 2])
  if not row then return refusal end --!guard fence
  call('HSET', row_key(id), 'progress', ARGV[at + 3]) --!write progress
  call('PUBLISH', row_key(id), 'progress') --!write progress-told
  emit('progress', id, 'token', ARGV[at + 1])
  return 'ok'
end)
flush_tally()
remember(verdicts)
return verdicts
