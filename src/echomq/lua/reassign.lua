-- verb: reassign
-- purpose: Move jobs that wait, or are dead, to another lane.
-- section: Protocol, sections 5 and 6
-- flags: allow-oom
-- include: now, once, row, begins, limits, rota, read, place, torn, items, emit, bell, lane
-- keys: meta hash; pending zset; job:<id> hash; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count
-- item: id tag; lane text
-- reply: a verdict an item
-- verdicts: ok
-- refusals: EMQGONE; EMQSTATE; EMQKIND; EMQVERSION; EMQSTALE
-- events: reassigned
-- cost: O(log n) an item
-- bound: 256 items
-- moves: pending -> pending; schedule -> schedule; dead -> dead
local kept, refused = recall()
if kept or refused then return kept or refused end

local verdicts = each(3, 2, function(at)
  local id, lane = ARGV[at], ARGV[at + 1]
  if not lane_fits(lane) then return 'EMQKIND lane ' .. lane end --!guard lane
  local row = read(id)
  if not row.state then return 'EMQGONE' end
  if row.state ~= 'pending' and row.state ~= 'schedule' and row.state ~= 'dead' then return 'EMQSTATE ' .. row.state end --!guard reassign-state
  if lane == (row.lane or '') then return 'ok' end --!guard same-lane
  begin_rota()
  local come = 0
  if row.state == 'pending' then come = call('ZADD', P .. lane_set(lane), -row.priority, id) end --!write reassign-enter
  if lane ~= '' then
    call('HSET', row_key(id), 'lane', lane) --!write reassign-lane
    laned = laned + come --!write reassign-laned
  else
    call('HDEL', row_key(id), 'lane') --!write reassign-no-lane
  end
  call('HDEL', row_key(id), 'holder') --!write reassign-holder
  if row.state == 'pending' then
    touch(lane, 1)
    leave(id, row) --!write reassign-leave
  end
  emit('reassigned', id, 'lane', lane)
  return 'ok'
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
