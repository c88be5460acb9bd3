-- verb: update
-- purpose: Give jobs that wait, or are dead, another payload.
-- section: Protocol, sections 1 and 5
-- flags:
-- include: now, once, row, torn, items, emit
-- keys: meta hash; job:<id> hash; once:<client>:<verb> string; events stream; counts hash
-- argv: client tag; number count
-- item: id tag; payload bytes; second piece bytes; third piece bytes; fourth piece bytes
-- reply: a verdict an item
-- verdicts: ok
-- refusals: EMQGONE; EMQSTATE; EMQVERSION; EMQSTALE
-- events: updated
-- cost: O(log n) an item
-- bound: 256 items
-- moves: pending -> pending; schedule -> schedule; waiting -> waiting; dead -> dead
local kept, refused = recall()
if kept or refused then return kept or refused end

local verdicts = each(3, 5, function(at)
  local id = ARGV[at]
  local state = call('HGET', row_key(id), 'state')
  if not state then return 'EMQGONE' end
  if state == 'active' or state == 'done' then return 'EMQSTATE ' .. state end --!guard update-state
  local fields, gone = { 'payload', ARGV[at + 1] }, {}
  for piece = 1, 3 do
    local name, text = 'payload.' .. piece, ARGV[at + 1 + piece]
    if text == '' then
      gone[#gone + 1] = name
    else
      fields[#fields + 1] = name
      fields[#fields + 1] = text
    end
  end
  call('HSET', row_key(id), unpack(fields)) --!write update-payload
  -- Whether the new one fits its handler, a worker has yet to see.
  call('HDEL', row_key(id), 'holder', 'unfit_since', unpack(gone)) --!write update-rest
  emit('updated', id)
  return 'ok'
end)
flush_tally()
remember(verdicts)
return verdicts
