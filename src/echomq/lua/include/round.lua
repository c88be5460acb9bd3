-- purpose: a round over ids of a set: one that is torn, or has no row, never stops those behind it.
-- defines: misplaced, broken, round
-- The row says another state than its set does, or there is none.
local function misplaced(id, state, set)
  call('ZREM', SETS[set], id) --!write misplaced
  tally(state and 'torn' or 'dropped')
  emit(state and 'torn' or 'dropped', id, 'set', set)
end
-- Whether an error is the row's own fault, which no other try will heal. Anything else is the server refusing us.
local function broken(id)
  local fine, problem = pcall(call, 'HGET', row_key(id), 'state')
  return not fine and string.find(problem.err or tostring(problem), 'WRONGTYPE', 1, true) ~= nil --!guard broken
end
-- Until the ids are used up, or `handle` answers true.
local function round(set, ids, handle)
  for _, id in ipairs(ids) do
    local fine, answer = pcall(handle, id)
    if not fine and broken(id) then
      -- An entry that cannot be handled must not be met again and again: its row is left to `repair`.
      tally('torn')
      call('ZREM', SETS[set], id) --!write round-torn
    elseif not fine then
      error(answer) --!guard round-refused
    elseif answer then
      return
    end
  end
end
