-- purpose: the ending without a trace but an event, on an operator's word.
-- defines: remove_now
local function remove_now(id, row)
  free_dedup(id, row)
  -- What is dead or done has told its end already.
  if ended and row.state ~= 'dead' and row.state ~= 'done' then ended(id, row, 'removed', '', '') end --!guard remove-told
  erase(id, row.children)
  leave(id, row) --!write remove-leave
  tell(id, row, 'removed')
  tally('removed')
  emit('removed', id, 'state', row.state)
end
