-- purpose: the ending of a job whose cancellation was asked for.
-- defines: cancel_now
local function cancel_now(id, row, reason)
  finish(id, row, 'cancelled', 'reason', reason)
  emit('cancelled', id, 'reason', reason)
  return 'cancelled ' .. reason
end
