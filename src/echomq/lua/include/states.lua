-- purpose: the sets that are read by name.
-- defines: state_set
-- Answers the key of a state's set, or of a lane's part of it; nil if there is none of that name.
local STATES = { pending = true, active = true, schedule = true, dead = true, done = true, waiting = true }
local function state_set(state, lane)
  if lane == '' then return STATES[state] and P .. state end
  if state == 'pending' then return P .. lane_set(lane) end
  if state == 'active' then return lane_active(lane) end
  return nil
end
