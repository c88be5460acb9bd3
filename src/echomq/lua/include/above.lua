-- purpose: what becomes of a job on another's word: its parent's.
-- defines: names_parent, tell_again, stop_child
-- Whether the row says that this is its parent.
local function names_parent(row, parent)
  return row.parent and string.match(row.parent, '^%S+') == parent
end
-- Tells the parent once more how a job ended that is dead or done.
local function tell_again(id, row)
  local f = call('HMGET', row_key(id), 'kind', 'reason', 'result', 'error')
  local parent, queue, name = string.match(row.parent, LINK.parent)
  local text = outcome(f[1] or 'dead', row.attempts or '0', f[2] or '', f[1] == 'completed' and f[3] or f[4] or '')
  owe(NOW, 'tell:' .. id, 'tell', queue, parent, id, name, text)
end
-- Its parent is over. Answers the verdict; nil for a job that is over itself.
local function stop_child(id, row, mode, reason)
  local state = row.state
  if state == 'active' then
    if row.cancel then return 'asked ' .. row.attempts end --!guard stop-once
    if mode == 'dead' then call('HSET', row_key(id), 'swept', 1) end --!write stop-swept
    return ask_to_stop(id, row, reason)
  elseif state == 'pending' or state == 'schedule' or state == 'waiting' then
    -- With a parent that died it can be brought back, with one that ended otherwise it cannot.
    if mode == 'dead' then --!guard stop-dead
      bury(id, row, reason)
    else
      cancel_now(id, row, reason)
    end
    return 'cancelled'
  end
  return nil
end
