-- purpose: the ending in the morgue.
-- defines: bury
local alert
if meta[11] then
  -- Somebody wants to be told of deaths: a job says so, with the dead one's digits in its own id, so that there is one at
  -- most. No alert for an alert, nor for children that died since their parent did.
  function alert(id, reason)
    if string.sub(reason, 1, 11) == 'parent dead' or call('HGET', row_key(id), 'task') == meta[11] then return end --!guard alert-loop
    local other = 'DED' .. string.sub(id, 4)
    if call('EXISTS', row_key(other)) == 1 then return end --!guard alert-twice
    call('ZADD', P .. 'pending', 0, other) --!write alert-enter
    call('HSET', row_key(other), 'state', 'pending', 'since', NOW, 'by', CLIENT, 'task', meta[11], 'payload', '{"args":["' .. id .. '"]}') --!write alert-row
    if ROTA then
      touch('', 1) --!write alert-touch
    else
      made_ready = made_ready + 1 --!write alert-ready
    end
    emit('enqueued', other)
  end
end
local function bury(id, row, reason, ...)
  free_dedup(id, row)
  place(id, row, 'dead', NOW, 'kind', 'dead', 'reason', reason, ...)
  release_holder(id, 'hold') --!write bury-hold
  if ended then ended(id, row, 'dead', reason, call('HGET', row_key(id), 'error') or '') end --!write bury-ended
  kept_dead, last_of_all = kept_dead + 1, trim_shelves --!write shelf-dead
  tell(id, row, 'dead')
  tally('dead')
  emit('dead', id, 'token', row.attempts or '0', 'reason', reason, 'error', row.fault or '')
  if alert then alert(id, reason) end --!write alert
end
