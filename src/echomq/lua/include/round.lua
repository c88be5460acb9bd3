-- purpose: a round over ids of a set: one that is torn, or has no row, never stops those behind it.
-- defines: drop, misplaced, broken, guarded, round
-- Takes an entry out of a set in which it should not be.
local function drop(key, id)
  local gone = call('ZREM', key, id) --!write drop
  if not ROTA then return end
  local lane = key == P .. 'pending' and '' or string.match(key, '^lane:(.*):pending$', #P + 1)
  if lane then touch(lane) end --!write drop-touch
  if lane and lane ~= '' then laned = laned - gone end --!write drop-laned
end
-- The row says another state than its set does, or there is none.
local function misplaced(id, state, key)
  drop(key, id)
  tally(state and 'torn' or 'dropped')
  emit(state and 'torn' or 'dropped', id, 'set', string.sub(key, #P + 1))
end
-- Whether an error is the row's own fault, which no other try will heal. Anything else is the server refusing us.
local function broken(id)
  local fine, problem = pcall(call, 'HGET', row_key(id), 'state')
  return not fine and string.find(problem.err or tostring(problem), 'WRONGTYPE', 1, true) ~= nil --!guard broken
end
-- Handles an entry of a set; answers what `handle` did.
local function guarded(key, id, handle)
  local fine, answer = pcall(handle, id, key)
  if fine then return answer end
  if not broken(id) then error(answer) end --!guard round-refused
  -- An entry that cannot be handled must not be met again and again: its row is left to `repair`.
  tally('torn')
  drop(key, id) --!write round-torn
  emit('torn', id, 'set', string.sub(key, #P + 1))
  return false
end
-- Until the ids are used up, or `handle` answers true.
local function round(key, ids, handle)
  for _, id in ipairs(ids) do
    if guarded(key, id, handle) then return end
  end
end
