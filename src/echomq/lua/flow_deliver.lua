-- verb: flow_deliver
-- purpose: Take in what an outbox sends: a child's outcome, a parent's end, the question what became of a child, its redrive.
-- section: Protocol, section 7
-- flags: allow-oom
-- include: now, number, row, flows, limits, rota, read, place, torn, items, emit, bell, erase, shelf, ending, bury, cancel, ask, dedup, redrive
-- flows: outbox, kin, above
-- keys: meta hash; pending zset; active zset; schedule zset; waiting zset; dead zset; done zset; job:<id> hash; job:<id>:log list; job:<id>:children hash; job:<id>:results hash; job:<id>:held list; outbox zset; outbox:entries hash; delivered:<entry> string; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; wake list; events stream; counts hash
-- argv: client tag; number count
-- item: kind text; id tag; other tag; name text; body bytes
-- reply: a verdict an item
-- verdicts: ok; again; gone; asked; cancelled; alive; lost
-- refusals: EMQKIND; EMQSTATE; EMQVERSION
-- events: cancelled; cancel_requested; redriven; trimmed; lost; dead
-- cost: O(log n) an item
-- bound: 256 items
-- moves: pending -> done; pending -> nothing; pending -> dead; schedule -> done; schedule -> nothing; schedule -> dead; waiting -> done; waiting -> nothing; waiting -> dead; dead -> pending; dead -> waiting; done -> nothing
local function lost_here(id)
  if call('HEXISTS', ENTRIES, 'tell:' .. id) == 1 then return 'alive' end --!guard telling
  return 'lost'
end
local kinds = {}
function kinds.tell(id, child, name, text)
  local verdict = receive(id, name, child, text)
  if verdict == 'ok' and string.sub(text, 1, 5) == 'lost ' then
    tally('lost')
    emit('lost', child, 'parent', id)
  end
  return verdict
end
function kinds.cancel(id, parent, mode, reason)
  local row = read(id)
  if not row.state then
    -- Should it be sent yet: it is not wanted any more.
    call('SET', P .. 'delivered:add:' .. id, 1, 'EX', 86400) --!write cancel-unborn
    return 'gone'
  end
  if not names_parent(row, parent) then return 'gone' end --!guard cancel-stranger
  return stop_child(id, row, mode, reason) or 'gone'
end
function kinds.ask(id, parent)
  local row = read(id)
  if not row.state or not names_parent(row, parent) then return lost_here(id) end --!guard ask-lost
  if row.state == 'dead' or row.state == 'done' then tell_again(id, row) end --!guard ask-ended
  return 'alive'
end
function kinds.redrive(id, parent, token)
  local row = read(id)
  if not row.state or not names_parent(row, parent) then return lost_here(id) end --!guard redrive-lost
  if row.state == 'dead' and (row.attempts or '0') == token then --!guard redrive-token
    local verdict = redrive_now(id, row)
    return verdict == 'ok' and 'alive' or string.sub(verdict, 1, 8) == 'EMQSTATE' and verdict or 'lost'
  end
  if row.state == 'dead' or row.state == 'done' then tell_again(id, row) end --!guard redrive-ended
  return 'alive'
end
local verdicts = each(3, 5, function(at)
  local kind = kinds[ARGV[at]]
  if not kind then return 'EMQKIND kind ' .. ARGV[at] end --!guard kind
  return kind(ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
end)
bell()
flush_tally()
return verdicts
