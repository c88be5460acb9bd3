-- purpose: the row and its place. Every change of state goes through `place`, so that row and sets agree.
-- defines: leave, place
local function leave(id, row)
  local state, lane = row.state, row.lane
  if state == 'active' then
    freed = freed + 1
    if lane then
      call('ZREM', lane_active(lane), id) --!write leave-lane
      touch(lane) --!write slot-freed
    end
    if not leaving then
      call('ZREM', ACTIVE, id) --!write leave
    elseif leaving == true then
      leaving = { id }
    else
      leaving[#leaving + 1] = id
    end
  elseif state == 'pending' and ROTA then
    local gone = call('ZREM', P .. lane_set(lane or ''), id) --!write leave-pending
    if lane then laned = laned - gone end --!write unlaned
    unready(lane or '') --!write job-left
  else
    call('ZREM', P .. state, id) --!write leave-other
  end
end
-- In this order: should the server refuse one of the three (a right the user lacks), the job is still in a set, and the row
-- says in which it belongs.
local function place(id, row, state, score, ...)
  if state == 'pending' then
    local lane = row.lane
    local come = call('ZADD', P .. lane_set(lane or ''), score, id) --!write enter-pending
    if lane then laned = laned + come end --!write place-laned
    ready(lane)
  else
    call('ZADD', P .. state, score, id) --!write enter
  end
  call('HSET', row_key(id), 'state', state, 'since', NOW, ...) --!write state
  leave(id, row)
end
