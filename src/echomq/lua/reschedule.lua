-- verb: reschedule
-- purpose: Give jobs that wait another time; one that is not ahead makes them ready.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, number, moment, once, row, limits, rota, read, place, torn, items, emit, bell
-- keys: meta hash; pending zset; schedule zset; job:<id> hash; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count
-- item: id tag; due moment
-- reply: a verdict an item
-- verdicts: ok
-- refusals: EMQGONE; EMQSTATE; EMQKIND; EMQVERSION; EMQSTALE
-- events: rescheduled
-- cost: O(log n) an item
-- bound: 256 items
-- moves: pending -> schedule; pending -> pending; schedule -> pending; schedule -> schedule
local kept, refused = recall()
if kept or refused then return kept or refused end

local verdicts = each(3, 2, function(at)
  local id, due = ARGV[at], moment_of(ARGV[at + 1])
  if not due then return 'EMQKIND due ' .. ARGV[at + 1] end --!guard due
  local row = read(id)
  if not row.state then return 'EMQGONE' end
  if row.state ~= 'pending' and row.state ~= 'schedule' then return 'EMQSTATE ' .. row.state end --!guard reschedule-state
  local state = due > NOW and 'schedule' or 'pending'
  if state == 'schedule' then watch(P .. 'schedule', due) end
  if state ~= row.state then
    place(id, row, state, state == 'schedule' and due or -row.priority)
  elseif state == 'schedule' then
    call('ZADD', P .. 'schedule', due, id) --!write new-time
  end
  call('HDEL', row_key(id), 'holder') --!write reschedule-holder
  emit('rescheduled', id, 'due', due)
  return 'ok'
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
