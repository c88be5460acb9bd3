-- purpose: what a job has beside its place: its dedup key, those who wait for it, its row.
-- defines: free_dedup, tell, erase
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
-- What a parent knew of its children stays while they are being told to stop; `flow_walk` erases it then.
local function erase(id, children)
  local key = row_key(id)
  if not children or call('HEXISTS', P .. 'outbox:entries', 'sweep:' .. id) == 1 then --!guard erase-swept
    call('DEL', key, key .. ':log') --!write erase
  else
    -- Of ten thousand children it takes milliseconds to free what is known: not while all others wait.
    call('UNLINK', key, key .. ':log', key .. ':children', key .. ':results') --!write erase-parent
  end
end
