-- purpose: the row and its place. Every change of state goes through `place`, so that row and sets agree.
-- defines: leave, place, release_holder
local function leave(id, row)
  local state = row.state
  if ROTA and leave_lane(id, state, row.lane) then return end
  if state ~= 'active' then
    call('ZREM', P .. state, id) --!write leave-other
    return
  end
  freed = freed + 1
  if not leaving then
    call('ZREM', ACTIVE, id) --!write leave
  elseif leaving == true then
    leaving = { id }
  else
    leaving[#leaving + 1] = id
  end
end
-- In this order: should the server refuse one of the three (a right the user lacks), the job is still in a set, and the row
-- says in which it belongs.
local function place(id, row, state, score, ...)
  if ROTA and state == 'pending' then
    enter_lane(id, row.lane or '', score)
  else
    call('ZADD', P .. state, score, id) --!write enter
    if state == 'pending' then made_ready = made_ready + 1 end --!write ready
  end
  call('HSET', row_key(id), 'state', state, 'since', NOW, ...) --!write state
  leave(id, row)
end
-- Whoever holds the job no longer does, not even as a late holder (section 1): every verb that ends a claim or changes a
-- job calls this, with the other fields it clears; only reap does not.
local function release_holder(id, ...)
  call('HDEL', row_key(id), 'holder', ...) --!write holder
end
