-- purpose: the ending in the morgue.
-- defines: bury
local function bury(id, row, reason, ...)
  free_dedup(id, row)
  place(id, row, 'dead', NOW, 'kind', 'dead', 'reason', reason, ...)
  release_holder(id)
  kept_dead, last_of_all = kept_dead + 1, trim_shelves --!write shelf-dead
  tell(id, row, 'dead')
  tally('dead')
  emit('dead', id, 'token', row.attempts or '0', 'reason', reason)
end
