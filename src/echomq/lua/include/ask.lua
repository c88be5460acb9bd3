-- purpose: a job that runs is asked to stop, by channel and by heartbeat.
-- defines: ask_to_stop
-- Answers the verdict.
local function ask_to_stop(id, row, reason)
  local token = row.attempts or '0' -- a torn row has none
  call('HSET', row_key(id), 'cancel', reason) --!write cancel-request
  call('PUBLISH', P .. 'cancel', id .. ' ' .. token .. ' ' .. reason) --!write cancel-event
  emit('cancel_requested', id, 'token', token, 'reason', reason)
  return 'asked ' .. token
end
