-- purpose: rule 8. What an ending owes: leave the sets, free the dedup key, keep or delete the row, tell, count.
-- defines: free_dedup, tell, erase, finish, bury, cancel_now
-- A window's key carries a TTL and outlives the job; any other is freed if it still names this job.
local function free_dedup(id, row)
  if not row.dedup then return end
  local key = P .. 'dedup:' .. row.dedup
  if call('GET', key) == id and call('PTTL', key) == -1 then --!guard dedup-free
    call('DEL', key) --!write dedup-free
  end
end
-- Those who wait for the result listen on a channel of the row's name.
local function tell(id, row, kind)
  if row.result_ttl_ms then call('PUBLISH', row_key(id), kind) end --!write tell
end
local function erase(id)
  call('DEL', row_key(id), row_key(id) .. ':log') --!write erase
end
-- Ends a job as `kind`: kept on the `done` shelf if it asked for that, else the row goes.
local function finish(id, row, kind, ...)
  free_dedup(id, row)
  local ttl = tonumber(row.result_ttl_ms) or 0
  if ttl > 0 then
    place(id, row, 'done', NOW + ttl, 'kind', kind, ...)
    call('HDEL', row_key(id), 'holder', 'cancel') --!write done-holder
  else
    erase(id)
    call('ZREM', SETS[row.state], id) --!write finish-leave
  end
  tell(id, row, kind)
  tally(kind)
end
-- Ends a job in the morgue.
local function bury(id, row, reason, ...)
  free_dedup(id, row)
  place(id, row, 'dead', NOW, 'kind', 'dead', 'reason', reason, ...)
  release_holder(id)
  tell(id, row, 'dead')
  tally('dead')
  emit('dead', id, 'token', row.attempts or '0', 'reason', reason)
end
local function cancel_now(id, row, reason)
  finish(id, row, 'cancelled', 'reason', reason)
  emit('cancelled', id, 'reason', reason)
  return 'cancelled ' .. reason
end
