-- purpose: the ending without a trace but an event, on an operator's word.
-- defines: remove_now
local function remove_now(id, row)
  free_dedup(id, row)
  erase(id)
  leave(id, row) --!write remove-leave
  tell(id, row, 'removed')
  tally('removed')
  emit('removed', id)
end
