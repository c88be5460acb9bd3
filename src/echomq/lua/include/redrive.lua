-- purpose: a new life for a dead job: budgets, times and error reset, token and checkpoint kept.
-- defines: redrive_now
local OF_THE_LAST_LIFE = {
  'failures', 'stalls', 'error', 'cancel', 'kind', 'reason', 'holder', 'progress', 'unfit_since', 'expires_ms', 'deadline_ms',
  'result', 'broken', 'early', 'seen', 'swept', 'due_ms',
}
-- Answers the verdict. A parent waits until those of its children that failed have been brought back, and have ended.
local function redrive_now(id, row)
  if row.children and call('HEXISTS', ENTRIES, 'sweep:' .. id) == 1 then return 'EMQSTATE sweeping' end --!guard redrive-swept
  if row.dedup then
    local holder = held_by(row.dedup, id)
    if holder then return 'duplicate ' .. holder end --!guard redrive-dedup
    -- A window that is its own goes on.
    local key = P .. 'dedup:' .. row.dedup
    if call('GET', key) ~= id then call('SET', key, id) end --!write redrive-dedup
  end
  if row.parent then strike('tell:' .. id) end --!write redrive-untold
  if row.children then --!guard redrive-parent
    place(id, row, 'waiting', NOW, 'hold', 'revive') --!write redrive-hold
    owe(NOW, 'revive:' .. id, 'revive', '', id, '0')
  else
    place(id, row, 'pending', -row.priority)
  end
  call('HDEL', row_key(id), unpack(OF_THE_LAST_LIFE)) --!write redrive-reset
  tally('redriven')
  emit('redriven', id)
  return 'ok'
end
