-- purpose: the ending in the morgue.
-- defines: bury
local function bury(id, row, reason, ...)
  free_dedup(id, row)
  place(id, row, 'dead', NOW, 'kind', 'dead', 'reason', reason, ...)
  release_holder(id)
  tell(id, row, 'dead')
  tally('dead')
  emit('dead', id, 'token', row.attempts or '0', 'reason', reason)
end
