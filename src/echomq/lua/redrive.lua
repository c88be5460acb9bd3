-- verb: redrive
-- purpose: Begin a new life for dead jobs: budgets, times and error reset, token and checkpoint kept, dedup key taken again or refused.
-- section: Protocol, section 5
-- flags: allow-oom
-- include: now, once, row, limits, rota, read, place, torn, items, emit, bell
-- keys: meta hash; pending zset; dead zset; job:<id> hash; dedup:<key> string; lane:<name>:pending zset; lane:<name>:active zset; ring list; closed zset; lanes hash; once:<client>:<verb> string; wake list; events stream; counts hash
-- argv: client tag; number count
-- item: id tag
-- reply: a verdict an item
-- verdicts: ok; duplicate
-- refusals: EMQGONE; EMQSTATE; EMQVERSION; EMQSTALE
-- events: redriven
-- cost: O(log n) an item
-- bound: 256 items
-- moves: dead -> pending
local kept, refused = recall()
if kept or refused then return kept or refused end

local OF_THE_LAST_LIFE = {
  'failures', 'stalls', 'error', 'cancel', 'kind', 'reason', 'holder', 'progress', 'unfit_since', 'expires_ms', 'deadline_ms',
  'result',
}
local verdicts = each(3, 1, function(at)
  local id = ARGV[at]
  local row = read(id)
  if not row.state then return 'EMQGONE' end
  if row.state ~= 'dead' then return 'EMQSTATE ' .. row.state end --!guard redrive-state
  if row.dedup then
    local key = P .. 'dedup:' .. row.dedup
    local holder = call('GET', key)
    if holder and holder ~= id then
      local state = call('HGET', row_key(holder), 'state')
      if call('PTTL', key) > 0 or (state and state ~= 'dead' and state ~= 'done') then return 'duplicate ' .. holder end --!guard redrive-dedup
    end
    if not holder or holder ~= id then call('SET', key, id) end --!write redrive-dedup
  end
  place(id, row, 'pending', -row.priority)
  call('HDEL', row_key(id), unpack(OF_THE_LAST_LIFE)) --!write redrive-reset
  tally('redriven')
  emit('redriven', id)
  return 'ok'
end)
bell()
flush_tally()
remember(verdicts)
return verdicts
