-- verb: reprioritise
-- purpose: Give jobs that wait, or are dead, another priority.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, number, once, row, torn, items, emit
-- keys: meta hash; pending zset; job:<id> hash; lane:<name>:pending zset; once:<client>:<verb> string; events stream; counts hash
-- argv: client tag; number count
-- item: id tag; priority integer
-- reply: a verdict an item
-- verdicts: ok
-- refusals: EMQGONE; EMQSTATE; EMQKIND; EMQVERSION; EMQSTALE
-- events: reprioritised
-- cost: O(log n) an item
-- bound: 256 items
-- moves: pending -> pending; schedule -> schedule; waiting -> waiting; dead -> dead
local kept, refused = recall()
if kept or refused then return kept or refused end

local verdicts = each(3, 2, function(at)
  local id, priority = ARGV[at], whole(ARGV[at + 1], -2047, 2047)
  if not priority then return 'EMQKIND priority ' .. ARGV[at + 1] end --!guard new-priority
  local row = call('HMGET', row_key(id), 'state', 'lane')
  local state = row[1]
  if not state then return 'EMQGONE' end
  if state == 'active' or state == 'done' then return 'EMQSTATE ' .. state end --!guard reprioritise-state
  if state == 'pending' then call('ZADD', P .. lane_set(row[2] or ''), 'XX', -priority, id) end --!write reprioritise-place
  if priority ~= 0 then call('HSET', row_key(id), 'priority', priority) end --!write priority
  call('HDEL', row_key(id), 'holder', priority == 0 and 'priority' or 'holder') --!write reprioritise-rest
  emit('reprioritised', id, 'priority', priority)
  return 'ok'
end)
flush_tally()
remember(verdicts)
return verdicts
