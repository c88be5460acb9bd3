-- purpose: the ending of a job whose cancellation was asked for.
-- defines: swept, cancel_now
-- Whether its parent's death asked for it: then it waits in the morgue to be redriven with the parent.
local function swept(id, row, reason)
  if not FLOWS or call('HDEL', row_key(id), 'swept') == 0 then return false end --!guard swept
  call('HDEL', row_key(id), 'cancel') --!write swept-cancel
  bury(id, row, reason) --!write swept-bury
  return true
end
local function cancel_now(id, row, reason)
  if not swept(id, row, reason) then
    finish(id, row, 'cancelled', 'reason', reason)
    emit('cancelled', id, 'reason', reason)
  end
  return 'cancelled ' .. reason
end
