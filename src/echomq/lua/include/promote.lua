-- purpose: jobs whose time has come go from the schedule to pending.
-- defines: promote
local function promote_one(id)
  local row = read(id)
  if row.state ~= 'schedule' then --!guard promote-state
    misplaced(id, row.state, P .. 'schedule') --!write promote-drop
    return
  end
  if not again(id, row, 'pending', -row.priority) then emit('promoted', id) end
end
-- Answers how many entries were handled; the bound was used up if that is `bound`.
local function promote(bound)
  local ids = call('ZRANGE', P .. 'schedule', '-inf', NOW, 'BYSCORE', 'LIMIT', 0, bound) --!bound promote
  round(P .. 'schedule', ids, promote_one)
  return #ids
end
