-- purpose: rule 8. What an ending owes: leave the sets, free the dedup key, keep or delete the row, tell, count.
-- defines: free_dedup, tell, erase, finish
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
  local key = row_key(id)
  call('DEL', key, key .. ':log') --!write erase
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
    leave(id, row.state) --!write finish-leave
  end
  tell(id, row, kind)
  tally(kind)
end
