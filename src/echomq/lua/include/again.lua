-- purpose: back to the machine after an attempt.
-- defines: release_holder, again
-- Whoever holds the job no longer does, not even as a late holder (section 1): every verb that ends a claim or changes a
-- job calls this, with the other fields it clears; only reap does not.
local function release_holder(id, ...)
  call('HDEL', row_key(id), 'holder', ...) --!write holder
end
-- Back to the machine, unless somebody asked for the job's cancellation: such a row never becomes ready again.
-- Answers the verdict of the cancellation, or nil.
local function again(id, row, state, score, ...)
  if row.cancel then return cancel_now(id, row, row.cancel) end --!guard cancel-again
  if state == 'schedule' then watch(P .. 'schedule', score) end
  place(id, row, state, score, ...)
  return nil
end
