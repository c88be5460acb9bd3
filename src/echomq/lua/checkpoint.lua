-- verb: checkpoint
-- purpose: Keep state for the next attempt; a step may repeat, never go back.
-- section: Protocol, section 5
-- flags:
-- include: now, number, once, row, read, torn, items, emit, fence
-- keys: meta hash; active zset; job:<id> hash; once:<client>:<verb> string; events stream; counts hash
-- argv: client tag; number count
-- item: id tag; token integer; nonce tag; step integer; state bytes
-- reply: a verdict an item
-- verdicts: ok
-- refusals: EMQSTALE; EMQGONE; EMQKIND; EMQSTATE; EMQVERSION
-- events: checkpoint
-- cost: O(log n) an item
-- bound: 256 items
-- moves: active -> active
local kept, refused = recall()
if kept or refused then return kept or refused end

local fenced = fence(ARGV, 3, 5, read)
local verdicts = each(3, 5, function(at)
  local id = ARGV[at]
  local step = whole(ARGV[at + 3], 0, FAR)
  if not step then return 'EMQKIND step ' .. ARGV[at + 3] end --!guard step
  local row, refusal = fenced(id, ARGV[at + 1], ARGV[at + 2])
  if not row then return refusal end --!guard fence
  if row.step and step < row.step then return 'EMQSTATE step ' .. row.step end --!guard step-back
  call('HSET', row_key(id), 'checkpoint', ARGV[at + 4], 'step', step) --!write checkpoint
  emit('checkpoint', id, 'token', ARGV[at + 1], 'step', step)
  return 'ok'
end)
flush_tally()
remember(verdicts)
return verdicts
