-- purpose: back to the machine after an attempt.
-- defines: again
-- Back to the machine, unless somebody asked for the job's cancellation: such a row never becomes ready again.
-- Answers the verdict of the cancellation, or nil.
local function again(id, row, state, score, ...)
  if row.cancel then return cancel_now(id, row, row.cancel) end --!guard cancel-again
  if state == 'schedule' then watch(P .. 'schedule', score) end
  place(id, row, state, score, ...)
  return nil
end
