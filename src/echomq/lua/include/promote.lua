-- purpose: jobs whose time has come go from the schedule to pending.
-- defines: promote
local function promote_one(id)
  local row = read(id)
  if row.state ~= 'schedule' then --!guard promote-state
    call('ZREM', SETS.schedule, id) --!write promote-drop
    tally(row.state and 'torn' or 'dropped')
    emit(row.state and 'torn' or 'dropped', id, 'set', 'schedule')
    return
  end
  if not again(id, row, 'pending', -row.priority) then emit('promoted', id) end
end
-- Answers how many entries were handled; the bound was used up if that is `bound`.
local function promote(bound)
  local ids = call('ZRANGE', SETS.schedule, '-inf', NOW, 'BYSCORE', 'LIMIT', 0, bound) --!bound promote
  for _, id in ipairs(ids) do
    local fine, problem = pcall(promote_one, id)
    if not fine and broken(id) then
      -- An entry that cannot be handled must not be met again and again: its row is left to `repair`.
      tally('torn')
      call('ZREM', SETS.schedule, id) --!write promote-torn
    elseif not fine then
      error(problem) --!guard promote-refused
    end
  end
  return #ids
end
