-- purpose: the stalled sweep: jobs whose lease has ended go back to pending, or to the morgue when that happened too often.
-- defines: reap
local function reap_one(id)
  local row = read(id)
  if row.state ~= 'active' then --!guard reap-state
    misplaced(id, row.state, ACTIVE) --!write reap-drop
    return
  end
  local stalls = row.stalls + 1
  if not row.cancel and stalls > row.max_stalls then --!bound max-stalls
    bury(id, row, 'stalled: its lease expired ' .. stalls .. ' times, max_stalls is ' .. row.max_stalls, 'stalls', stalls)
    return
  end
  -- The holder stays in the row: a late completion is still welcome as long as nobody else has claimed the job.
  if not again(id, row, 'pending', -row.priority, 'stalls', stalls) then
    tally('stalled')
    emit('stalled', id, 'token', row.attempts or '0', 'stalls', stalls)
  end
end
-- Answers how many entries were handled; the bound was used up if that is `bound`.
local function reap(bound)
  local lease_max = tonumber(meta[5])
  if lease_max then
    -- The clock stepped back: a lease further ahead than any lease in use is pulled in.
    local far = call('ZRANGE', ACTIVE, -1, -1, 'WITHSCORES')
    if far[2] and tonumber(far[2]) > NOW + lease_max then --!guard lease-ahead
      call('ZADD', ACTIVE, NOW + lease_max, far[1]) --!write lease-ahead
      local fine, lane = pcall(call, 'HGET', row_key(far[1]), 'lane')
      if fine and lane then call('ZADD', lane_active(lane), 'XX', NOW + lease_max, far[1]) end --!write lane-ahead
    end
  end
  local ids = call('ZRANGE', ACTIVE, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, bound) --!bound reap
  round(ACTIVE, ids, reap_one)
  return #ids
end
